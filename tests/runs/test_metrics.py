import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.run_directory import MetricsLog


@pytest.fixture
def log(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in (10, 20, 30):
        log.append({"step": step, "elbo": -100.0 + step})
    return log


def steps(log):
    return [record["step"] for record in log.read()]


def test_no_file_means_no_records(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.drop_after(5)
    log.sync()
    assert log.read() == []
    assert not log.path.exists()


def test_records_come_back(log):
    log.sync()
    assert log.read()[1] == {"step": 20, "elbo": -80.0}


def test_a_torn_last_line_is_ignored_and_then_removed(log):
    whole = log.path.read_bytes()
    for cut in range(1, 26):  # every place inside the last line
        log.path.write_bytes(whole[:-cut])
        assert steps(log) == [10, 20]
    log.append({"step": 31, "elbo": -69.0})
    assert steps(log) == [10, 20, 31]


def test_a_file_that_is_one_torn_line(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.path.write_bytes(b'{"step": 1')
    log.append({"step": 2})
    assert steps(log) == [2]


def test_lines_beyond_the_step_are_dropped(log):
    log.drop_after(20)
    assert steps(log) == [10, 20]
    log.append({"step": 25})
    assert steps(log) == [10, 20, 25]


def test_dropping_removes_a_damaged_tail(log):
    log.path.write_bytes(log.path.read_bytes() + b"\x00" * 40 + b"\n" + b'{"st')
    with pytest.raises(InvalidInputError, match="line 4,"):
        log.read()
    log.drop_after(30)
    assert steps(log) == [10, 20, 30]


def test_dropping_nothing_does_not_rewrite(log):
    before = log.path.stat().st_mtime_ns, log.path.stat().st_ino
    log.drop_after(30)
    assert (log.path.stat().st_mtime_ns, log.path.stat().st_ino) == before


def test_damage_before_a_kept_line_is_refused_by_its_number(log):
    lines = log.path.read_bytes().split(b"\n")
    lines[1] = b"garbage"
    log.path.write_bytes(b"\n".join(lines))
    with pytest.raises(InvalidInputError, match="line 2, must be a JSON object with a step"):
        log.read()
    with pytest.raises(InvalidInputError, match="line 2,"):
        log.drop_after(30)
    log.drop_after(10)
    assert steps(log) == [10]


@pytest.mark.parametrize("record", [{}, {"step": -1}, {"step": True}, {"step": 1.5}])
def test_a_record_needs_its_step(log, record):
    with pytest.raises(InvalidInputError, match="record, field 'step'"):
        log.append(record)
    assert steps(log) == [10, 20, 30]


def test_a_record_must_be_finite(log):
    with pytest.raises(InvalidInputError, match="record, field 'elbo'"):
        log.append({"step": 40, "elbo": float("nan")})
    assert steps(log) == [10, 20, 30]


def test_a_negative_step_cannot_be_resumed(log):
    with pytest.raises(InvalidInputError, match="step must be a non-negative integer"):
        log.drop_after(-1)
