#!/usr/bin/env bash
# Installs what the tests need and runs everything: lint, types, tests.
#
# In a virtual environment that is active, or in .venv, which it makes. Debian packages are installed when root; without
# root, tests that lack one are skipped and say so. HPCCOLL_REQUIRE_ALL=1 turns such skips into failures.
#
#   bash tests/run.sh            what protects an everyday change: about 6 minutes on two idle cores
#   bash tests/run.sh --slow     also sweeps, Slurm and all launches of ranks, as in CI
#   bash tests/run.sh --all      also the rarer drills and the commands of all guides: before a release
#
# Other arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(gcc libc6-dev hdf5-tools slurm-wlm munge libpmix-dev iproute2 nftables shellcheck)
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null && ! dpkg -s "${packages[@]}" > /dev/null 2>&1; then
    echo "installing Debian packages: ${packages[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
fi

if ! python3 -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)'; then
    [ -x .venv/bin/python3 ] || python3 -m venv .venv
    PATH=$PWD/.venv/bin:$PATH
fi
installed=$(python3 -c 'import sys; print(sys.prefix)')/hpccoll-tests-installed
if ! [ "$installed" -nt pyproject.toml ] || [ "$(< "$installed")" != "$PWD" ]; then # seconds of every run otherwise
    echo "installing hpccoll and what its tests need, which takes minutes"
    python3 -m pip install --quiet -e '.[dev]'
    echo "$PWD" > "$installed"
fi

echo "lint and types"
sources=()
if [ -e .git ] && command -v git > /dev/null; then # not what only you have here
    programs=(slurm/testbed/testbed tests/gpu/on_host/hpccoll)
    mapfile -t sources < <(git ls-files -- '*.py' '*.ipynb' '*.md' pyproject.toml "${programs[@]}")
fi
if [ "${#sources[@]}" = 0 ]; then # without git, as in an sdist
    sources=(.)
fi
python3 -m ruff check --force-exclude "${sources[@]}"
python3 -m ruff format --check --force-exclude "${sources[@]}"
python3 -m mypy
python3 -m snakefmt --check workflows

unset PYTHONDONTWRITEBYTECODE # thousands of processes start: each would compile what it imports

selected="not slow and not long"
case "${1-}" in
    --slow)
        selected="not long"
        shift
        ;;
    --all)
        selected="long or not long"
        shift
        ;;
esac
echo "tests: $selected"
python3 -m pytest -n auto -m "$selected" "$@"
