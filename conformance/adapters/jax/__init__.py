"""The adapter of ``jax.experimental.pallas.ops.tpu.splash_attention`` and of its forks."""
