"""The rule for scripts that Bazel has built in."""

def sh_test(**attributes):
    native.sh_test(**attributes)
