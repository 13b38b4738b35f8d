"""A summary names the commit of a checkout, and none elsewhere."""

import subprocess
from pathlib import Path

from adaquantfl.runs import provenance


def test_the_commit_is_that_of_the_checkout_and_says_whether_files_differ(tmp_path: Path) -> None:
    assert provenance.commit(tmp_path) == ""

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    git("init")
    assert provenance.commit(tmp_path) == "", "there is no commit yet"
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "first")
    git("tag", "v1")
    assert provenance.commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "file").write_text("two")
    assert provenance.commit(tmp_path) == f"{git('rev-parse', 'HEAD')}-dirty"
