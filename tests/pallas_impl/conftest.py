"""Settings that must be in the environment before jax starts."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
# Eight devices for the ring; compiling for the CPU takes longer than running, so it is not optimised.
for flag in ("--xla_force_host_platform_device_count=8", "--xla_backend_optimization_level=0"):
    if flag.split("=")[0] not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
