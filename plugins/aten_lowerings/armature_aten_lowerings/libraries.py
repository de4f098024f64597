"""Operators that are left to libraries by choice: loops would be slower, or repeat an algorithm of many pages."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from armature.plugin_api import overload

# What a library computes, and the names of the operators.
NAMES: Mapping[str, tuple[str, ...]] = {
    "a product of matrices": (
        "mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "vdot", "addbmm", "_int_mm", "_scaled_mm",
        "_addmm_activation", "linear", "_trilinear", "_grouped_mm", "_weight_int4pack_mm", "_weight_int8pack_mm",
        "mm.dtype", "bmm.dtype", "addmm.dtype", "baddbmm.dtype",
    ),
    "a convolution": (
        "convolution", "convolution_backward", "_convolution", "mkldnn_convolution", "cudnn_convolution",
        "slow_conv2d_backward.output_mask", "_slow_conv2d_forward", "slow_conv3d_forward", "conv_depthwise3d",
        "_conv_depthwise2d", "conv_tbc", "conv_tbc_backward",
    ),
    "attention": (
        "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward",
        "_scaled_dot_product_fused_attention_overrideable", "_flash_attention_forward", "_flash_attention_backward",
        "_efficient_attention_forward", "_efficient_attention_backward",
    ),
    "a sort": (
        "sort", "sort.stable", "topk", "kthvalue", "median", "median.dim", "nanmedian", "nanmedian.dim", "mode",
        "msort", "argsort.stable",
        "_unique2", "unique_dim", "unique_consecutive", "histogram.bins_tensor", "histogram.bin_ct",
        "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors",
    ),
    "a Fourier transform": ("_fft_c2c", "_fft_c2r", "_fft_r2c"),
    "linear algebra": (
        "linalg_cholesky_ex", "cholesky", "cholesky_inverse", "cholesky_solve", "linalg_eig", "_linalg_eigh",
        "_linalg_eigvals", "linalg_eigvals", "linalg_householder_product", "linalg_inv_ex", "linalg_ldl_factor_ex",
        "linalg_ldl_solve", "linalg_lu", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_matrix_exp", "linalg_qr",
        "linalg_solve_triangular", "_linalg_solve_ex", "_linalg_svd", "_linalg_det", "_linalg_slogdet", "lu_unpack",
        "geqrf", "ormqr", "triangular_solve", "linalg_lstsq", "_linalg_check_errors", "linalg_matrix_power",
    ),
    "a recurrent cell": (
        "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_cudnn_rnn", "_cudnn_rnn_backward", "_thnn_fused_lstm_cell",
        "_thnn_fused_lstm_cell_backward_impl", "_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward",
    ),
    "an interpolation, whose kernel shares weights between channels": (
        "grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward",
        "upsample_linear1d", "upsample_linear1d_backward", "upsample_trilinear3d", "upsample_trilinear3d_backward",
        "upsample_bilinear2d", "upsample_bilinear2d_backward", "upsample_bicubic2d", "upsample_bicubic2d_backward",
    ),
    "a pooled embedding": (
        "_embedding_bag", "_embedding_bag_forward_only", "_embedding_bag_backward", "_embedding_bag_dense_backward",
        "_embedding_bag_per_sample_weights_backward",
    ),
    "a view of complex numbers as real ones, or the reverse": (
        "view_as_real", "view_as_complex", "_conj", "resolve_conj", "resolve_neg",
    ),
    "a loss by dynamic programming": (
        "_ctc_loss", "_ctc_loss.Tensor", "_ctc_loss_backward", "_ctc_loss_backward.Tensor", "_cudnn_ctc_loss",
        "_use_cudnn_ctc_loss",
    ),
}  # fmt: skip

LIBRARIES: Mapping[torch._ops.OpOverload, str] = {
    op: what for what, names in NAMES.items() for name in names if (op := overload(name)) is not None
}
