"""What torch.distributions keeps between calls, and asks of its classes."""

from __future__ import annotations

from torch.distributions import kl_divergence

from armature.plugin_api import Call, Value, existing, handles

CHOICE = existing("torch.distributions.kl._KL_MEMOIZE", "torch.distributions.kl._dispatch_kl")


@handles(kl_divergence)
def divergence(call: Call, p: Value, q: Value) -> Value | None:
    """Traced into, with its function for these classes already chosen: code for a choice that is still to be made would
    be useless from the second call on."""
    pair = (p.python_type(), q.python_type())
    if len(CHOICE) == 2 and pair not in CHOICE[0]:
        chosen, choose = CHOICE
        chosen[pair] = choose(*pair)
    return None


@handles(*existing("torch.distributions.utils._lazy_property_and_property"))
def property_of_distributions(call: Call, wrapped: Value) -> Value | None:
    """The result of a distribution's lazy property for the class, because argument checks ask whether it exists."""
    return call.new_value(call.fn(wrapped.as_object()))
