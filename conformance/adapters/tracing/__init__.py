"""Observes Pallas TPU kernels from outside: what every grid step fetches, computes and writes.

Nothing is executed and nothing is assumed about the kernel's own arrays. `trace_kernels` reads the grid, the block
shapes and the index maps from the traced program, evaluates the index maps at every grid step, and follows the kernel's
scalars through its body. `schedule_from_trace` turns what was seen into the `reference.schedule.Schedule` that the
clauses are written over.

For an adapter of your own kernel::

    q = jax.ShapeDtypeStruct((heads, q_len, 128), jnp.float32)
    (trace,) = trace_kernels(my_attention, q, k, v)
    schedule = schedule_from_trace(
        trace,
        direction="fwd",
        operands={"q": BlockAxes("q_ref", (0, 1)), "k": BlockAxes("k_ref", (0, 1)),
                  "v": BlockAxes("v_ref", (0, 1))},
        outputs={"o": BlockAxes("o_ref", (0, 1))},
    )

Kernels that copy data by hand (``make_async_copy``, ``emit_pipeline``) have ``manual_copies`` set: their index maps do
not tell what is in memory, and their schedule cannot be read this way.

Kernels that work on several blocks of an operand in one step of their grid receive each through a parameter of its own:
give a list of `BlockAxes` for such an operand, in the order of the work.
"""

from conformance.adapters.tracing.kernel_trace import BlockTrace, KernelTrace, TraceError
from conformance.adapters.tracing.memory import Accesses
from conformance.adapters.tracing.observe import evaluate_program, trace_kernels, trace_program
from conformance.adapters.tracing.schedule import BlockAxes, schedule_from_trace

__all__ = [
    "Accesses",
    "BlockAxes",
    "BlockTrace",
    "KernelTrace",
    "TraceError",
    "evaluate_program",
    "schedule_from_trace",
    "trace_kernels",
    "trace_program",
]
