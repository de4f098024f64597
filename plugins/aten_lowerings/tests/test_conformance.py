"""What every lowering has to hold."""

from armature.testing.lowering_kit import LoweringConformance
from armature_aten_lowerings import plugin


class TestLowerings(LoweringConformance):
    rows = tuple(plugin.armature_lowerings())
