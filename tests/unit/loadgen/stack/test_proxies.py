"""Start commands of the peers."""

from __future__ import annotations

import json

import pytest
from weft_bench.stack import proxies
from weft_bench.stack.proxies import OURS, PEERS, Absent, Proxy
from weft_gateway.constants import Constants

ENGINES = ["http://127.0.0.1:1", "http://127.0.0.1:2"]


@pytest.mark.parametrize("proxy", [OURS, *PEERS.values()], ids=lambda p: p.name)
def test_every_proxy_gets_both_engines_and_its_port(proxy, tmp_path):
    command = proxy.command(tmp_path, ENGINES, 7000, tmp_path)
    written = " ".join(command) + "".join(f.read_text() for f in tmp_path.iterdir())
    assert all(url in written for url in ENGINES)
    assert "7000" in command


def test_peers_are_pinned_and_installed_separately():
    assert all("==" in peer.requirement for name, peer in PEERS.items() if name != "bare")
    assert proxies.PEERS_FOLDER.parts[-2:] == (".weft", "peers")


def test_bare_is_weft_with_all_optional_features_off(tmp_path):
    command = PEERS["bare"].command(tmp_path, ENGINES, 7000, tmp_path)
    constants = Constants(**json.loads(command[3]))
    assert not any((constants.lineage, constants.tag_prompts, constants.auto_prefill))
    assert constants.receipts == 0


@pytest.mark.slow
def test_peer_that_cannot_be_installed_is_absent_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(proxies, "PEERS_FOLDER", tmp_path)
    broken = Proxy("x", "./no-such-package==0", lambda *_: [])
    with pytest.raises(Absent) as raised:
        proxies.ensure(broken)
    assert str(raised.value)


def test_our_settings_do_not_leak_into_a_peer(monkeypatch):
    monkeypatch.setenv("WEFT_PORT", "1")
    monkeypatch.setenv("PYTHONPATH", "/x")
    found = proxies.environment(PEERS["litellm"])
    assert "WEFT_PORT" not in found
    assert "PYTHONPATH" not in found
    assert found["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
