"""``mlsysim bytes``: how many bytes a save holds, and who writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlsysim.cli import main

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL = LLAMA_8B | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B))
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert 0 == main(["bytes", *arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_without_a_plan(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a plan the JSON has the first four keys, and the numbers of an 8B."""
    found = answer(capsys, "--config", config, "--recipe", "mixed-adam")
    assert ["parameters", "bytes_per_param", "checkpoint_bytes", "bytes_by_component"] == list(found)
    assert 8_030_261_248 == found["parameters"]["magnitude"]
    assert {"magnitude": 14.0, "unit": "byte/parameter"} == found["bytes_per_param"]
    assert 14 * 8_030_261_248 == found["checkpoint_bytes"]["magnitude"]


def test_with_a_plan(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With a plan come least, mean and most per rank, imbalance and replication; the mean times the ranks is the whole."""
    found = answer(capsys, "--config", config, "--recipe", "mixed-adam", "--plan", "tp=2,pp=2,dp=4,zero=1")
    per_rank = found["bytes_per_rank"]
    assert ["least", "mean", "most"] == list(per_rank)
    assert 16 * per_rank["mean"]["magnitude"] == pytest.approx(found["checkpoint_bytes"]["magnitude"])
    assert 1.0 == found["replication"]
    assert found["imbalance"] == pytest.approx(per_rank["most"]["magnitude"] / per_rank["mean"]["magnitude"])


def test_the_card_names_the_stage(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The card says which rank writes most, and its stage: the last, with the norm and the output layer."""
    assert 0 == main(["bytes", "--config", config, "--recipe", "mixed_adam", "--plan", "pp=4"])
    assert "stage 3 of 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--recipe", "adam"], "Did you mean"),
        (["--recipe", "mixed-adam", "--plan", "tp=3"], "divisor of the 32 heads"),
        (["--recipe", "mixed-adam", "--plan", "pp=33"], "A stage without layers"),
        (["--recipe", "mixed-adam", "--plan", "tp"], "key=value"),
        (["--recipe", "mixed-adam", "--plan", "tensr=2"], "made of known keys"),
        (["--recipe", "mixed-adam", "--plan", "tp=2,tp=2"], "given once"),
        (["--recipe", "mixed-adam", "--plan", "tp=-2"], "whole number"),
        (["--recipe", "mixed-adam", "--plan", "ep=2,dp=2"], "without experts"),
        (["--recipe", "mixed-adam", "--plan", "writers=nobody"], "one of balanced"),
        (["--recipe", "mixed-adam", "--lora-base", "bfloat16"], "--lora-rank"),
        (["--recipe", "mixed-adam", "--lora-rank", "1.5"], "--lora-rank must be a whole number"),
        (["--recipe", "mixed-adam", "--ranks-per-node", "7.6", "--plan", "dp=8"], "--ranks-per-node must be a whole number"),
        (["--recipe", "mixed-adam", "--ranks-per-node", "0"], "at least 1"),
        (["--recipe", "mixed-adam", "--plan", "dp=999999999"], "byte of memory"),
    ],
)
def test_bad_input_is_one_line(config: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    """Bad input is one line on stderr that says what to write, and exit code 2."""
    assert 2 == main(["bytes", "--config", config, *arguments])
    out, err = capsys.readouterr()
    assert ("", 1) == (out, len(err.splitlines()))
    assert said in err


def test_experts_want_their_degree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model with experts wants the degree of expert parallelism stated, and takes it."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MIXTRAL))
    assert 2 == main(["bytes", "--config", str(path), "--recipe", "mixed-adam", "--plan", "dp=8,zero=1"])
    assert "ParallelPlan.expert" in capsys.readouterr().err
    assert 0 == main(["bytes", "--config", str(path), "--recipe", "mixed-adam", "--plan", "dp=8,ep=8,zero=1", "--json"])
    assert 46_702_792_704 == json.loads(capsys.readouterr().out)["parameters"]["magnitude"]
