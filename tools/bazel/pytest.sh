#!/bin/bash
# Runs pytest, for `bazel test`, in a copy of the inputs: what they don't name is not there, and in
# build/ tests may write.
set -euo pipefail
build=$(dirname "$(dirname "$(readlink -f ../venv/pyvenv.cfg)")")
root=$TEST_TMPDIR/root
mkdir -p "$root/build/sources" "$root/build/toolchain"
cp -RL . "$root"

# Folders of build/, each if an input names it.
link() { [[ ! -e $1 ]] || ln -s "$build/$2" "$root/build/$2"; }
link ../venv venv
link ../patched_tools toolchain/mock
link ../built/models models
link ../built/overlay overlay
for stamp in ../built/llvm-*/.git/overlay-applied; do
  llvm=$(basename "$(dirname "$(dirname "$stamp")")")
  for folder in "$llvm" "sources/$llvm" "sources/$llvm.origin"; do
    link "$stamp" "$folder"
  done
done
for package in ../built/sources/archive/*; do
  link "$package" "sources/$(basename "$package")"
done

cd "$root"
export HOME=$TEST_TMPDIR PYTHONPATH=$root
exec build/venv/bin/python -m pytest --quiet -p no:cacheprovider --basetemp="$TEST_TMPDIR/pytest" --junitxml="$XML_OUTPUT_FILE" "$@"
