"""What stands between the runs and everybody else: headers, host names, tokens, the address, what pages may contain."""

import base64
import hashlib
import http.client
import re
import stat
import tomllib
from pathlib import Path

import psutil
import pytest
import streamlit
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.testclient import TestClient

from regimescope.monitor.cells import cell
from regimescope.monitor.endpoint import endpoint_path
from regimescope.monitor.ui import security
from regimescope.monitor.ui.context import Context
from regimescope.monitor.ui.routes import ROUTES
from regimescope.monitor.ui.settings import ServeError, Settings, parse_flag, parse_port, server_config

REPOSITORY = Path(__file__).parents[2]
UI = REPOSITORY / "monitor" / "ui"


@pytest.fixture(scope="module")
def server(serve, tmp_path_factory):
    return serve(tmp_path_factory.mktemp("root") / "runs", command=("app.py",))


def gate_context(**changes):
    given = {
        "monitor": None,
        "read_token": "r",
        "read_only": False,
        "actor": "ana",
        "control_token": "c" * 20,
        "address": "",
    }
    return Context(**given | changes)


# -- a running server --


@pytest.mark.parametrize(
    "path", ["/", "/alerts", "/api/series", "/api/plotly.min.js", "/_stcore/health", "/no/such/file.js"]
)
def test_every_answer_carries_the_security_headers(server, path):
    _, headers, _ = server.request(path, token=False)
    for name, value in security.security_headers().items():
        assert headers[name] == value
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_the_page_has_no_inline_script_but_the_hashed_one(server):
    _, headers, body = server.request("/", token=False)
    scripts = re.findall(r"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", body, flags=re.DOTALL)
    assert scripts
    for text in scripts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in headers["content-security-policy"]


def test_listens_on_loopback_alone(server):
    """Streamlit's default would be all interfaces; App.run() ignores STREAMLIT_SERVER_ADDRESS."""
    listening = [
        c.laddr.ip for c in psutil.Process(server.process.pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]


@pytest.mark.parametrize("path", ["/", "/api/series", "/api/plotly.min.js", "/_stcore/health"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", ""])
def test_a_foreign_host_name_is_refused(server, path, host):
    status, _, _ = server.request(path, headers={"Host": host})
    assert status == 400


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "http://evil.example"}],
    ids=["host", "origin"],
)
def test_a_foreign_websocket_is_refused(server, headers):
    connection = http.client.HTTPConnection("127.0.0.1", int(server.address.rpartition(":")[2]), timeout=10)
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "eA==" * 6,
    }
    connection.request("GET", "/_stcore/stream", headers=upgrade | headers)
    status = connection.getresponse().status
    connection.close()
    assert status in (400, 403)


def test_endpoint_is_private(server):
    path = endpoint_path(server.root)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(server.token) >= 32


def test_every_route_but_the_library_wants_the_token(server):
    """Of the list that the server is built from, so a new route cannot be forgotten here."""
    for route in ROUTES:
        assert route.path.startswith("/api/")
        data = {"run": "x", "kind": "pause"} if "POST" in route.methods else None
        status, headers, _ = server.request(route.path, token=False, data=data)
        assert status == (200 if route.path == "/api/plotly.min.js" else 401), route.path
        assert headers["x-frame-options"] == "DENY"
    assert (
        server.request("/api/series?run=x&metrics=accuracy", headers={"X-Regimescope-Token": "no"}, token=False)[0]
        == 401
    )


def test_an_answer_to_a_mistake_of_ours_carries_the_headers_too():
    def broken(request):
        raise ZeroDivisionError("a secret")

    app = Starlette(routes=[Route("/api/broken", broken)], middleware=[Middleware(security.SecurityHeaders)])
    answer = TestClient(app).get("/api/broken")
    assert answer.status_code == 500 and "secret" not in answer.text
    assert {name: answer.headers[name] for name in security.security_headers()} == security.security_headers()


def test_a_control_token_is_in_no_address_log_or_store(serve, tmp_path, record, write_step):
    """Given right and wrong, it is found in nothing that the server wrote or printed."""
    secret, wrong = "s3cret-" + "c" * 20, "wr0ng-" + "d" * 20
    recorder = record(tmp_path / "runs" / "demo")
    write_step(recorder, 0)
    cache = tmp_path / "cache"
    server = serve(tmp_path / "runs", REGIMESCOPE_CONTROL_TOKEN=secret, REGIMESCOPE_CACHE=str(cache))
    ask = {"run": "demo", "kind": "pause", "args": {}, "expect": None, "why": "x"}
    answers = [
        server.request("/api/commands", data=ask, headers={security.CONTROL_HEADER: token}) for token in (wrong, secret)
    ]
    assert answers[0][0] == 403 and answers[1][0] != 403
    printed = server.stop()
    files = [path for folder in (tmp_path / "runs", cache) for path in folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".jsonl" for path in files) and any("duckdb" in path.name for path in files)
    for token in (secret, wrong):
        assert token not in printed and all(token not in body for _, _, body in answers)
        assert not [path for path in files if token.encode() in path.read_bytes()]


def test_read_only_server_refuses_to_write(serve, tmp_path):
    server = serve(tmp_path / "runs", "--read-only")
    status, _, body = server.request("/api/commands", data={"run": "x", "kind": "pause", "why": "x"})
    assert status == 403 and "read-only" in body


# -- rules --


def test_streamlit_config_file_is_the_servers_own_configuration():
    with (REPOSITORY / ".streamlit" / "config.toml").open("rb") as file:
        stored = _dotted(tomllib.load(file))
    expected = {name: value for name, value in server_config().items() if name != "server.port"}
    assert stored == expected


def _dotted(tables, prefix=""):
    found = {}
    for name, value in tables.items():
        found |= _dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def test_what_streamlit_protects_by_itself_stays_on_and_what_it_could_open_stays_off():
    safe = {"enableCORS": True, "enableXsrfProtection": True, "enableStaticServing": False, "enableAgentApi": False}
    for name, value in safe.items():
        assert streamlit.config.get_config_options()[f"server.{name}"].default_val is value
        assert f"server.{name}" not in server_config()


def test_a_cell_that_a_spreadsheet_would_run_gets_an_apostrophe():
    assert [cell(text) for text in ("=1+1", "+1", "-1", "@x", "\tx")] == ["'=1+1", "'+1", "'-1", "'@x", "'\tx"]
    assert cell("math") == "math" and cell("") == ""


def test_installed_streamlit_knows_every_option():
    known = streamlit.config.get_config_options()
    assert not [name for name in server_config() if name not in known]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "some-host"])
def test_others_can_command_only_with_a_token(host):
    with pytest.raises(ServeError, match="REGIMESCOPE_CONTROL_TOKEN"):
        Settings(root=Path("runs"), host=host)
    assert Settings(root=Path("runs"), host=host, read_only=True).control_token is None
    assert Settings(root=Path("runs"), host=host, control_token="c" * 20).host == host


@pytest.mark.parametrize(
    ("hosts", "local"),
    [
        (("127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost"), True),
        (("0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", ""), False),
    ],
)
def test_what_counts_as_loopback(hosts, local):
    assert {security.is_loopback(host) for host in hosts} == {local}


def test_allowed_hosts_never_hold_a_wildcard():
    assert security.allowed_hosts("127.0.0.1") == ["localhost", "127.0.0.1", "[::1]", "::1"]
    wide = security.allowed_hosts("0.0.0.0")
    assert {"localhost", "127.0.0.1"} <= set(wide) and not {"0.0.0.0", "*", "::", ""} & set(wide)
    assert "box.example" in security.allowed_hosts("box.example")


def test_a_gate_opens_again_after_its_window_and_per_address():
    gate, ctx = security.ControlGate(), gate_context()
    for second in range(5):
        with pytest.raises(security.ControlRefused) as refused:
            gate.check("wrong", ctx, peer="a", now=float(second))
        assert refused.value.status == 403
    with pytest.raises(security.ControlRefused) as refused:
        gate.check("c" * 20, ctx, peer="a", now=59.9)
    assert refused.value.status == 429
    gate.check("c" * 20, ctx, peer="b", now=59.9)
    gate.check("c" * 20, ctx, peer="a", now=60.0)


def test_a_missing_token_costs_no_try():
    gate, ctx = security.ControlGate(), gate_context()
    for _ in range(20):
        with pytest.raises(security.ControlRefused, match="needed"):
            gate.check(None, ctx, peer="a", now=0.0)
    gate.check("c" * 20, ctx, peer="a", now=0.0)


def test_read_only_beats_the_right_token():
    with pytest.raises(security.ControlRefused, match="read-only"):
        security.ControlGate().check("c" * 20, gate_context(read_only=True), peer="a")


@pytest.mark.parametrize(
    ("mode", "text", "word"), [(0o644, "c" * 20, "chmod 600"), (0o600, "short", "16"), (None, "", "No such file")]
)
def test_a_token_file_must_be_private_and_long(tmp_path, mode, text, word):
    path = tmp_path / "token"
    if mode is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(security.TokenError, match=word):
        security.load_control_token(path)


def test_a_good_token_file_is_read(tmp_path):
    path = tmp_path / "token"
    path.write_text("c" * 20 + "\n")
    path.chmod(0o600)
    assert security.load_control_token(path) == "c" * 20


@pytest.mark.parametrize("text", ["", "-1", "65536", "80a", "\uff18\uff10"])
def test_a_port_is_a_number_in_range(text):
    with pytest.raises(ServeError, match="--port"):
        parse_port(text, "--port")


def test_a_flag_is_one_or_zero():
    assert parse_flag("Yes", "X") is True and parse_flag("off", "X") is False
    with pytest.raises(ServeError, match="X"):
        parse_flag("maybe", "X")


MARKUP = ("innerHTML", "outerHTML", "insertAdjacentHTML", "unsafe_allow")
IN_PAGES = ("document.write", "eval(", "new Function", "createContextualFragment", "srcdoc", "st.components.v1")
SOURCES = [
    path
    for folder in ("monitor", "trainer", "detectors", "src/regimescope")
    for path in (REPOSITORY / folder).rglob("*")
    if path.suffix in (".py", ".js", ".html") and "__pycache__" not in path.parts
]


def test_no_page_or_script_makes_markup_of_data():
    """Text of models and runs reaches the page by st.text, st.code or textContent only."""
    assert len(SOURCES) > 150 and REPOSITORY / "monitor" / "ui" / "grid.js" in SOURCES
    found = []
    for path in [*SOURCES, REPOSITORY / "app.py"]:
        text = path.read_text("utf-8")
        banned = (*MARKUP, *IN_PAGES) if path.is_relative_to(UI) else MARKUP
        found += [f"{path.name}: {word}" for word in banned if word in text]
    assert not found
