"""The GPU kernels compile for every architecture without spills, without a GPU."""

from itertools import cycle, islice

import pytest
from nvrtc_kernels import (
    ITEM_SIZES,
    KERNEL_TYPES,
    LIBRARIES,
    OPS,
    PACKAGE,
    PEER,
    Nvrtc,
    Variant,
    complaints,
    defect,
    variants,
)


@pytest.fixture(scope="module", params=LIBRARIES, ids="CUDA {}".format)
def nvrtc(request, require):
    nvrtc = Nvrtc(request.param)
    require(
        nvrtc.library,
        f"NVRTC {request.param} is not installed: pip install 'hpccoll[test]' does so on Linux",
    )
    return nvrtc


def test_every_architecture_is_compiled_for_and_every_kernel_without_spills(nvrtc):
    """Kernels take turns over the architectures; on all of them they take minutes."""
    names, made = nvrtc.architectures, variants()
    turns = [*islice(zip(cycle(names), cycle(made)), max(len(names), len(made)))]
    assert {variant.source for variant in made} == {*PACKAGE.rglob("*.cu")}
    assert len({variant.label for variant in made}) >= len(KERNEL_TYPES) * len(OPS) + len(
        ITEM_SIZES
    )
    assert {*names} >= {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}
    assert [*filter(None, (defect(nvrtc, variant, name) for name, variant in turns))] == []


@pytest.mark.long
def test_every_kernel_compiles_for_every_architecture_without_spills(nvrtc):
    found = (defect(nvrtc, variant, name) for variant in variants() for name in nvrtc.architectures)
    assert [*filter(None, found)] == []


def test_no_kernel_takes_subnormals_for_zeros_as_cupy_compiles_it(nvrtc):
    """CuPy compiles with -ftz=true, under which arithmetic of float that is not in PTX becomes .ftz."""
    ptx = {
        variant.label: nvrtc.compile(variant, "compute_90", "-ftz=true")[0].decode()
        for variant in variants()
    }
    assert all(".entry" in code for code in ptx.values())
    assert [label for label, code in ptx.items() if ".ftz" in code] == []


def test_the_peer_kernel_orders_its_flags_for_the_system_and_reads_peers_coherently(nvrtc):
    """A load through the read-only cache (.nc) may not see what a peer has written during the launch."""
    for variant in variants():
        if variant.source != PEER or variant.macros["OP"] != "SUM":
            continue
        ptx = nvrtc.compile(variant, "compute_80", "-ftz=true")[0].decode()
        assert "ld.acquire.sys.global.u64" in ptx, variant.label
        assert "st.release.sys.global.u64" in ptx, variant.label
        assert ".nc." not in ptx, variant.label


def test_spills_and_a_silent_assembler_are_defects():
    spilled = "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads"
    assert complaints(spilled, 1) == ["16 bytes of stack, 8 of spills"]
    assert complaints(spilled.replace("16", "0").replace("8", "0"), 1) == []
    assert complaints("", 1) == ["the assembler reports no stack frames"]
    assert complaints("fold.cu(3): warning: x", 1) == ["fold.cu(3): warning: x"]


def test_a_broken_kernel_is_found(nvrtc, tmp_path):
    fold = next(variant for variant in variants() if variant.source.name == "fold.cu")
    source = tmp_path / "fold.cu"
    for word, other, said in (
        ("row[1]", "rows[1]", '"rows" is undefined'),
        ("const int me", "int unused, me", "never"),
    ):
        source.write_text(fold.source.read_text().replace(word, other))
        assert said in defect(nvrtc, Variant(source, fold.macros), "sm_90")
