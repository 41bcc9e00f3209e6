"""The GPU kernels compile for every architecture, without a GPU."""

import pytest
from nvrtc_kernels import ARCHITECTURES, ITEM_SIZES, KERNEL_TYPES, OPS, PACKAGE, Nvrtc, Variant, defect, variants


@pytest.fixture(scope="module")
def nvrtc(require):
    nvrtc = Nvrtc()
    require(nvrtc.library, "nvidia-cuda-nvrtc-cu12 is not installed")
    return nvrtc


@pytest.mark.parametrize("turn", range(len(ARCHITECTURES)), ids=ARCHITECTURES)
def test_kernels_compile(nvrtc, turn):
    """Folds take turns, because all on all would take half a minute: an architecture has every op and five dtypes."""
    folds = [variant for variant in variants() if variant.source.name == "fold.cu"]
    taken = [fold for at, fold in enumerate(folds) if sum(divmod(at, len(OPS))) % len(ARCHITECTURES) == turn]
    others = [variant for variant in variants() if variant.source.name != "fold.cu"]
    assert [*filter(None, (defect(nvrtc, variant, ARCHITECTURES[turn]) for variant in taken + others))] == []
    assert {fold.macros["OP"] for fold in taken} == {*OPS}


def test_every_kernel_is_among_them():
    made = variants()
    assert {variant.source for variant in made} == {*PACKAGE.rglob("*.cu")}
    assert len({variant.label for variant in made}) >= len(KERNEL_TYPES) * len(OPS) + len(ITEM_SIZES)


def test_a_broken_kernel_is_found(nvrtc, tmp_path):
    fold = next(variant for variant in variants() if variant.source.name == "fold.cu")
    source = tmp_path / "fold.cu"
    for word, other, said in (
        ("row[1]", "rows[1]", '"rows" is undefined'),
        ("const int me", "int unused, me", "never"),
    ):
        source.write_text(fold.source.read_text().replace(word, other))
        assert said in defect(nvrtc, Variant(source, fold.macros), "sm_90")
