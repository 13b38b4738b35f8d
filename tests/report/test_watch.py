"""`adaquantfl watch` shows runs as they grow, to this machine only."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adaquantfl.cli import main
from adaquantfl.errors import EngineError
from adaquantfl.report import watch
from support.processes import HANG_SECONDS

MakeRun = Callable[..., Path]


@pytest.fixture
def run(make_run: MakeRun) -> Path:
    return make_run("run", losses=[2.0, 1.0, 0.5], finished=False, rounds=9)


@pytest.fixture
def server(run: Path) -> Iterator[watch.PageServer]:
    with watch.serve([run], port=0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def ask(server: watch.PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=HANG_SECONDS)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_page_and_its_data_are_served(server: watch.PageServer) -> None:
    code, page = ask(server, "/")
    assert code == 200
    assert 'data-live="/data.json"' in page
    assert "connect-src 'self'" in page
    code, text = ask(server, "/data.json")
    assert code == 200
    data = json.loads(text)
    assert data["status"] == "Under way: AdaQuantFL seed 0, round 3 of 9."
    assert data["methods"][0]["runs"][0]["columns"]["loss"] == [2.0, 1.0, 0.5]
    assert ask(server, "/config.toml")[0] == 404
    assert ask(server, "/../run/config.toml")[0] == 404


def test_only_what_is_new_is_sent(server: watch.PageServer, run: Path) -> None:
    first = json.loads(ask(server, "/data.json?since=")[1])
    assert ask(server, f"/data.json?since={first['version']}") == (204, "")
    grow(run, 4)
    code, text = ask(server, f"/data.json?since={first['version']}")
    assert code == 200
    assert json.loads(text)["version"] != first["version"]
    assert "round 4 of 9" in json.loads(text)["status"]


def test_a_half_written_line_waits_until_it_is_whole(server: watch.PageServer, run: Path) -> None:
    line = next_line(run, 4)
    with (run / "history.jsonl").open("a") as history:
        history.write(line[:20])
        history.flush()
        assert "round 3 of 9" in json.loads(ask(server, "/data.json")[1])["status"]
        history.write(line[20:])
    assert "round 4 of 9" in json.loads(ask(server, "/data.json")[1])["status"]


def test_a_folder_that_cannot_be_read_for_a_while_keeps_the_last_page(server: watch.PageServer, run: Path) -> None:
    text = (run / "history.jsonl").read_text()
    (run / "history.jsonl").write_text("damaged\n" + text)
    data = json.loads(ask(server, "/data.json")[1])
    assert "is damaged" in data["status"]
    assert data["methods"][0]["runs"][0]["columns"]["round"] == [1, 2, 3]
    (run / "history.jsonl").write_text(text)
    assert "round 3 of 9" in json.loads(ask(server, "/data.json")[1])["status"]


@pytest.mark.parametrize("host", ["evil.example:{port}", "127.0.0.1:1", ""])
def test_another_name_for_this_machine_is_refused(server: watch.PageServer, host: str) -> None:
    code, text = ask(server, "/data.json", Host=host.format(port=server.server_port))
    assert code == 403
    assert "paper_bits" not in text
    assert ask(server, "/", Host=f"localhost:{server.server_port}")[0] == 200


def test_nothing_can_be_changed_and_nobody_else_can_connect(server: watch.PageServer) -> None:
    assert ask(server, "/", method="POST")[0] == 501
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_a_port_in_use_and_a_folder_without_a_run_get_a_sentence(
    server: watch.PageServer, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(EngineError, match=f"Port {server.server_port} is in use"):
        watch.serve([run], server.server_port)
    (tmp_path / "empty").mkdir()
    assert main(["watch", str(tmp_path / "empty")]) == 1
    assert "No run was found" in capsys.readouterr().err
    assert main(["watch", str(tmp_path / "nowhere")]) == 1
    with pytest.raises(SystemExit, match="2"):
        main(["watch", str(run), "--port", "70000"])


def test_the_command_says_where_and_ends_with_ctrl_c(run: Path) -> None:
    command = [sys.executable, "-m", "adaquantfl", "watch", str(run), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Watching at http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, errors) == (0, "")


def next_line(run: Path, number: int) -> str:
    last = json.loads((run / "history.jsonl").read_text().splitlines()[-1])
    return json.dumps({**last, "round": number}) + "\n"


def grow(run: Path, number: int) -> None:
    line = next_line(run, number)
    with (run / "history.jsonl").open("a") as history:
        history.write(line)
