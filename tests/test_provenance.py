"""`environment.json` names everything beyond the recipe that the bits depend on."""

from __future__ import annotations

import subprocess
import sys

import numpy
import pytest
import torch

from lockstep import compiler, provenance
from lockstep.device import Device


def test_versions_libraries_and_processor_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    facts = provenance.describe(Device("cpu", 1), compiles=False)
    assert facts["torch"] == torch.__version__
    assert facts["numpy"] == numpy.__version__
    assert facts["pillow"] == provenance.package_version("pillow")
    assert facts["threads"] == 1
    assert facts["variables"]["MKL_CBWR"] == "AVX2"
    assert all(facts[key] for key in ("python", "machine", "processor", "cpu_capability"))
    assert "compiler" not in facts


def test_the_compiler_is_named_when_it_is_used() -> None:
    facts = provenance.describe(Device("cpu", 1), compiles=True)
    assert facts["compiler"] == compiler.version()
    assert "triton" in facts


def test_math_libraries_are_read_from_what_torch_says() -> None:
    text = (
        "  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for Intel(R) 64 architecture\n"
        "  - Intel(R) MKL-DNN v3.12.0 (Git Hash 80afa71)\n"
    )
    assert provenance.math_libraries(text) == {"mkl": "2024.2-Product Build 20240605", "mkldnn": "v3.12.0"}
    assert provenance.math_libraries("BLAS_INFO=open") == {"mkl": None, "mkldnn": None}
    if torch.backends.mkldnn.is_available():
        assert provenance.math_libraries(torch.__config__.show())["mkldnn"] is not None


def test_the_decoder_is_named_where_images_are_decoded() -> None:
    assert provenance.package_version("no-such-package") is None
    program = "from PIL import Image; from lockstep import provenance; print(provenance.jpeg_decoder()['libjpeg'])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout[0].isdigit()
