# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A factory of Buildbot that builds the patched tools and gates them (docs/gate-a-bot.md).

In master.cfg, `from buildbot_factory import gate_factory`, and give a builder
`gate_factory(REPOSITORY, "/srv/gate")`: a folder that outlives builds, with `baseline.json` and the
corpora that it was recorded on. The status 3 of a candidate that is worse fails the step `gate`.
"""

from buildbot.plugins import steps, util


def gate_factory(repository: str, store: str, branch: str = "main") -> util.BuildFactory:
    """Checks out, builds, compares with the baseline, and keeps what was found.

    Args:
      repository: URL of the sources.
      store: folder with `baseline.json`; the history `gate.jsonl` is kept there, too.
      branch: of the repository.
    """
    cop = "build/venv/bin/cop"
    check = [cop, "gate", "check", f"{store}/baseline.json", "--toolchain=build/toolchain/dev"]
    check += ["--model=models/inline-size", f"--store={store}/gate.jsonl"]
    check += ["--junit=gate.xml", "--markdown=gate.md", "--measured=measured.json"]
    history = [cop, "gate", "history", f"{store}/gate.jsonl", "--html=gate.html"]
    return util.BuildFactory(
        [
            steps.Git(repourl=repository, branch=branch, mode="incremental"),
            steps.ShellCommand(name="bootstrap", command=["tools/bootstrap"], haltOnFailure=True),
            steps.ShellCommand(
                name="build",
                command=[cop, "toolchain", "build", "--toolchain=dev"],
                haltOnFailure=True,
                timeout=3600,
            ),
            # An interrupted check goes on in the next build: its work folder is in the store.
            steps.ShellCommand(
                name="gate",
                command=[*check, f"--work={store}/work"],
                logfiles={"gate.md": "gate.md"},
                timeout=3600,
            ),
            steps.ShellCommand(name="history", command=history, alwaysRun=True),
        ]
    )
