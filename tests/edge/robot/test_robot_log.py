import json
import math

import pytest
from jsonschema import validate

from gpf.edge.robot import Gas, Odometry, Robot, Wind
from gpf.edge.robot.log import SCHEMAS, EpisodeLog, read_log
from gpf.edge.robot.simulated import Single, fly
from gpf.navigation import Reactive

SHORT = {"preset": "paper", "max_steps": 20}


@pytest.fixture(scope="module")
def flown(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "episode.mcap"
    with EpisodeLog(path) as log:
        flight = fly(Single(Reactive(), SHORT, 900), SHORT, 900, log=log)
    return path, flight


def test_a_log_has_everything_that_happened_in_order(flown):
    path, flight = flown
    entries = read_log(path)
    assert {entry.channel for entry in entries} == set(SCHEMAS)
    assert [entry.values["action"] for entry in entries if entry.channel == "action"] == flight.actions
    assert [entry.time for entry in entries] == sorted(entry.time for entry in entries)
    statuses = [(entry.values["state"], entry.values["reason"]) for entry in entries if entry.channel == "status"]
    assert statuses == [
        ("waiting", "waiting for gas, wind, odometry"), ("running", ""), ("stopped", "the episode is over"),
    ]  # fmt: skip
    commands = [entry for entry in entries if entry.channel == "command"]
    assert len(commands) == round(flight.seconds / 0.02) + 1
    assert commands[-1].values == {"stamp": pytest.approx(flight.seconds), "linear": 0.0, "angular": 0.0}


def test_every_entry_follows_the_schema_of_its_channel(flown):
    from mcap.reader import make_reader

    path, _ = flown
    with path.open("rb") as file:
        reader = make_reader(file)
        for schema, channel, message in reader.iter_messages():
            assert (schema.encoding, channel.message_encoding) == ("jsonschema", "json")
            validate(json.loads(message.data), json.loads(schema.data))
        counts = reader.get_summary().statistics.channel_message_counts
    assert len(counts) == len(SCHEMAS)


def test_a_log_appears_when_it_is_complete(tmp_path):
    log = EpisodeLog(tmp_path / "episode.mcap")
    log.write("wind", 1.0, {"speed": 1.0, "direction": 0.0, "frame": "world"})
    assert not (tmp_path / "episode.mcap").exists()
    log.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["episode.mcap"]
    assert read_log(tmp_path / "episode.mcap")[0].values["speed"] == 1.0
    with pytest.raises(ValueError, match="path must be a new file"):
        EpisodeLog(tmp_path / "episode.mcap")


def test_a_log_is_complete_after_an_error_too(tmp_path):
    def fails():
        with EpisodeLog(tmp_path / "episode.mcap") as log:
            log.write("wind", 1.0, {"speed": 1.0})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert len(read_log(tmp_path / "episode.mcap")) == 1


def test_bad_readings_are_logged_with_null_in_place_of_nan(tmp_path):
    with EpisodeLog(tmp_path / "episode.mcap") as log:
        robot = Robot(lambda raw: 0, "paper", clock=lambda: 5.0, log=log)
        robot.receive(Gas(math.nan, math.inf, 0.5))
    entries = {entry.channel: entry for entry in read_log(tmp_path / "episode.mcap")}
    assert (entries["gas"].values["left"], entries["gas"].values["right"]) == (None, 0.5)
    assert entries["gas"].time == 5.0
    assert entries["status"].values["reason"] == "gas stamp must be a finite number, got nan"


def test_a_log_that_cannot_be_written_stops_the_robot_once():
    class Full:
        def write(self, channel, stamp, values):
            raise OSError(28, "No space left on device")

    robot = Robot(lambda raw: 0, "paper", clock=lambda: 5.0, log=Full())
    assert robot.status.reason == "the log cannot be written (No space left on device)"
    robot.resume()
    for message in (Gas(5.0, 0.0, 0.0), Wind(5.0, 1.0, 0.0), Odometry(5.0, 0.0, 0.0, 0.0)):
        robot.receive(message)
    assert robot.command().linear == 0.5
