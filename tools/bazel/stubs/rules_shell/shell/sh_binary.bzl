"""The rule for scripts that Bazel has built in."""

def sh_binary(**attributes):
    native.sh_binary(**attributes)
