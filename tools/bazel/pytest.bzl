"""pytest as targets of `bazel test`."""

load("@rules_shell//shell:sh_test.bzl", "sh_test")

# conftest.py finds the package's environment and the patched tools by them.
_ENVIRONMENT = [
    "//:conftest",
    "//:pyproject.toml",
    "@venv//:.bootstrapped",
    "@venv//:litert",
    "@venv//:pyvenv.cfg",
]

# For `data` of tests that compile with the patched tools.
MOCK_TOOLS = [
    "@patched_tools//:bin",
    "@patched_tools//:headers",
    "@patched_tools//:models",
]

def pytest(name, srcs, data = [], in_place = False, tags = [], **attributes):
    """A target that runs files of pytest, on a copy that has what is named here and nothing else.

    Args:
      name: of the target.
      srcs: the test files, of this package.
      data: what they read: code of ours, files of the repository, what has been built.
      in_place: run them in the source tree instead, each time anew, for tests of the tree itself.
      tags: as of any target.
      **attributes: as of any test.
    """
    sh_test(
        name = name,
        size = "large",
        # pytest has a limit for each test (pyproject.toml).
        timeout = "eternal",
        srcs = ["//tools/bazel:pytest_in_place.sh" if in_place else "//tools/bazel:pytest.sh"],
        args = [native.package_name() + "/" + src for src in srcs],
        data = _ENVIRONMENT + srcs + data,
        tags = tags + (["external", "local"] if in_place else []),
        **attributes
    )

def programs(*packages):
    """For `data` of tests that build programs of these Debian source packages.

    Args:
      *packages: names. What has not been fetched yet, the test fetches for itself.
    """
    return ["@built//:" + package for package in packages]
