"""What tests of `torch.compile` compile with."""

import pytest
from torch._inductor import cpp_builder

TRACED = "aot_eager"  # traces and differentiates as inductor does, and compiles nothing


def has_compiler():
    try:
        cpp_builder.get_cpp_compiler()
    except Exception:
        return False
    return True


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler here")
