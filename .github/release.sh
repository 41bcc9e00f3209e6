#!/usr/bin/env bash
# Builds the sdist and the wheels of a release into dist/, and checks that PyPI takes them and that they run on
# distributions of 2018 (glibc 2.28).
#
# The environment needs: pip install -e '.[release]'. The wheel for musl (Alpine) needs Debian's musl-tools; without
# them it is left out. Wheels of other architectures are built by .github/workflows/wheels.yml.
set -euo pipefail
cd "$(dirname "$0")/.."

check_glibc() { # the wheel: tagged as auditwheel tags it, for glibc 2.28 or older
    local tag
    tag=$(python3 -m auditwheel show "$1" | grep -o '"manylinux_2_[0-9]*_[^"]*"' | head -1 | tr -d '"')
    if [[ $1 != *-"$tag".whl ]] || (("$(cut -d_ -f3 <<< "$tag")" > 28)); then
        echo "$1: auditwheel says ${tag:-no manylinux}; valid: the tag of the wheel, manylinux_2_28 or older" >&2
        exit 1
    fi
}

build_musl_wheel() {
    local stub
    stub=$(mktemp -d)
    # Linking records the name under which Alpine has musl, libc.musl-ARCHITECTURE.so.1: auditwheel knows no other.
    musl-gcc -shared -nostdlib -x c /dev/null -Wl,-soname,"libc.musl-$(uname -m).so.1" -o "$stub/libc.so"
    CC=musl-gcc LDFLAGS="-L$stub -Wl,--no-as-needed" python3 -m build --wheel
    rm -r "$stub"
}

rm -rf dist
python3 -m build # the sdist, and from it the wheel
check_glibc dist/*.whl
if command -v musl-gcc > /dev/null; then
    build_musl_wheel
    python3 -m auditwheel show dist/*musllinux*.whl | grep -q '"musllinux_'
else
    echo "without a wheel for musl; do: apt-get install musl-tools" >&2
fi
python3 -m twine check --strict dist/*
ls -l dist
