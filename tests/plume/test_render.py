import gc
import os
import sys

import gymnasium
import numpy as np
import pytest
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

import gpf  # noqa: F401 - registers the environments
from gpf.plume.env import PlumeEnv
from gpf.plume.render import Window, draw, save_animation
from gpf.plume.vector_env import PlumeVectorEnv


def frames(count=6):
    env = PlumeEnv("reference", render_mode="rgb_array")
    env.reset(seed=1)
    for _ in range(count):
        for _ in range(20):
            env.step(0)
        yield env.render()


def test_a_frame_shows_plume_source_agent_and_path():
    env = PlumeEnv("reference", render_mode="rgb_array")
    env.reset(seed=1)
    empty = env.render()
    for _ in range(100):
        env.step(0)
    frame = env.render()
    assert frame.shape == (480, 480, 3)
    assert frame.dtype == np.uint8
    lane = env.world.lanes[0]

    def pixel(x, y):
        return frame[round((20 - y) * 24), round(x * 24)].astype(int)

    assert pixel(lane["source_x"], lane["source_y"])[1] > 90  # green
    assert np.ptp(pixel(lane["x"], lane["y"])) > 20  # not background
    assert (frame != empty).any(axis=2).mean() > 0.01  # the plume has come in
    filament = env.world.filaments[0][:, lane["last"] - 15]
    assert pixel(filament[0], filament[1]).sum() < empty[round((20 - filament[1]) * 24), round(filament[0] * 24)].sum()


def test_a_domain_that_is_not_square_keeps_its_shape():
    env = PlumeEnv({"height": 10.0, "width": 30.0}, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (160, 480, 3)


def test_every_lane_of_a_vector_environment_is_drawn():
    env = PlumeVectorEnv(2, render_mode="rgb_array")
    env.reset(seed=0)
    for _ in range(30):
        env.step(np.zeros(2, int))
    first, second = env.render()
    assert first.shape == second.shape == (480, 480, 3)
    assert (first != second).any()
    single = gymnasium.make("gpf/Plume-v0", render_mode="rgb_array")
    single.reset(seed=1)
    for _ in range(30):
        single.step(0)
    assert (single.render() == second).all()


def test_a_window_without_a_display_says_so_and_goes_on(capsys):
    env = PlumeEnv(render_mode="human")
    env.reset(seed=0)
    env.step(0)
    env.close()
    assert capsys.readouterr().err == "gpf: no display, so render_mode 'human' shows nothing; try 'rgb_array'\n"


class Screen:
    """A stand-in for a display: a backend of matplotlib that counts as interactive, and keeps what it would show."""

    name = "module://gpf_test_screen"

    def __init__(self):
        self.pictures, self.waits, self.now, self.closed = [], [], 0.0, 0
        screen = self

        class Canvas(FigureCanvasAgg):
            def start_event_loop(self, timeout=0):
                self.draw()
                screen.pictures.append(np.array(self.buffer_rgba())[..., :3])
                screen.waits.append(timeout)
                screen.now += timeout

        class Manager(FigureManagerBase):
            def show(self):
                pass

            def destroy(self):
                screen.closed += 1

        Canvas.manager_class = Manager
        self.FigureCanvas, self.FigureManager = Canvas, Manager


@pytest.fixture
def screen(monkeypatch):
    import matplotlib.pyplot as plt
    from matplotlib.backends import BackendFilter, backend_registry

    screen, before = Screen(), plt.get_backend()
    real = backend_registry.list_builtin(BackendFilter.INTERACTIVE)
    monkeypatch.setitem(sys.modules, "gpf_test_screen", screen)
    monkeypatch.setattr(backend_registry, "list_builtin", lambda kind: [*real, screen.name])
    monkeypatch.setattr("gpf.plume.render.time.monotonic", lambda: screen.now)
    plt.switch_backend(screen.name)
    yield screen
    plt.close("all")
    plt.switch_backend(before)


def test_a_window_shows_the_start_and_every_step_at_the_pace_of_the_world(screen):
    env = gymnasium.make("gpf/Plume-v0", scenario={"speed": 10.0}, render_mode="human")
    watched = gymnasium.wrappers.RecordEpisodeStatistics(env)
    twin = gymnasium.make("gpf/Plume-v0", scenario={"speed": 10.0}, render_mode="rgb_array")
    for one in (watched, twin):
        one.reset(seed=1, options={"position": [9.0, 3.0], "heading": 1.0})
    expected = [twin.render()]
    for action in (0, 1, 4, 0, 2):
        for one in (watched, twin):
            one.step(action)
        expected.append(twin.render())
    assert watched.render() is None
    assert screen.waits == pytest.approx([1 / 10] * 6)  # ten steps a second
    height, width, _ = screen.pictures[0].shape
    expected = [np.asarray(Image.fromarray(frame).resize((width, height))).astype(float) for frame in expected]
    for n, picture in enumerate(screen.pictures):
        unlike = [np.abs(picture - frame).mean() for frame in expected]
        assert np.argmin(unlike) == n
        assert unlike[n] < 1.0  # of 255
    env.close()
    env.close()
    assert screen.closed == 1


def test_a_window_that_is_late_does_not_hurry_after(screen):
    window = Window(fps=10)
    for frame in frames(2):
        window.show(frame)
        screen.now += 5.0  # something else took long
    window.show(frame)
    assert screen.waits == pytest.approx([0.1, 1e-3, 1e-3])


def test_an_episode_goes_on_when_the_user_closes_the_window(screen, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.setattr("time.sleep", lambda seconds: None)
    env = PlumeEnv(render_mode="human")
    env.reset(seed=0)
    plt.close("gpf plume")
    for _ in range(3):
        env.step(0)
    env.close()
    assert len(screen.pictures) == 1


def test_an_episode_is_saved_as_gif(tmp_path):
    save_animation(frames(), tmp_path / "a" / "episode.gif")
    with Image.open(tmp_path / "a" / "episode.gif") as image:
        assert image.n_frames == 6
        assert image.size == (480, 480)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["episode.gif"]


@pytest.mark.parametrize("kind", ["gif", "webp"])
def test_an_animation_can_be_watched_and_shows_its_end_for_longer(tmp_path, kind):
    save_animation(frames(), tmp_path / f"episode.{kind}")
    with Image.open(tmp_path / f"episode.{kind}") as image:
        durations = []
        for n in range(image.n_frames):
            image.seek(n)
            image.load()
            durations.append(image.info["duration"])
        assert all(50 <= duration <= 125 for duration in durations[:-1])  # 8 to 20 frames a second
        assert durations[-1] >= 1000
        *_, last = frames()
        error = np.abs(np.asarray(image.convert("RGB")).astype(int) - last)
    assert error.mean() < 3
    green = (last[:, :, 1].astype(int) - last[:, :, 0]) > 60  # the source, of few pixels, keeps its colour
    assert green.any()
    assert error[green].mean() < 40


def test_an_episode_is_saved_as_mp4(tmp_path):
    import imageio_ffmpeg

    save_animation(frames(), tmp_path / "episode.mp4")
    count, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "episode.mp4"))
    assert count == 6


def test_an_animation_that_fails_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "episode.gif"
    path.write_bytes(b"old")

    def broken():
        yield from frames(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_animation(broken(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the encoder's pipe stays open
@pytest.mark.parametrize("kind", ["gif", "mp4"])
def test_a_full_disk_is_reported_with_the_file(tmp_path, kind, capfd):
    (tmp_path / f".{os.getpid()}-walk.{kind}").symlink_to("/dev/full")  # in the place of the temporary file
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its attributes are compared
        save_animation(frames(2), tmp_path / f"walk.{kind}")
    assert caught.value.filename == str(tmp_path / f"walk.{kind}")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
    capfd.readouterr()  # the encoder says more than one line
    del caught
    gc.collect()


def test_a_folder_that_cannot_be_written_to_is_reported_with_the_file(tmp_path, monkeypatch):
    refused = PermissionError(13, "Permission denied", ".temporary.gif")
    monkeypatch.setattr("gpf.plume.render._write_gif", lambda *arguments: (_ for _ in ()).throw(refused))
    with pytest.raises(PermissionError) as caught:  # as root, no folder refuses
        save_animation([], tmp_path / "walk.gif")
    assert caught.value.filename == str(tmp_path / "walk.gif")


@pytest.mark.parametrize(("radius", "circles"), [(1e5, 0), (0.5, 1)])
def test_a_circle_larger_than_the_domain_is_not_drawn(monkeypatch, radius, circles):
    """Pillow takes half a minute for it, and it would not be seen."""
    drawn = []
    monkeypatch.setattr("PIL.ImageDraw.ImageDraw.ellipse", lambda self, box, **style: drawn.append(style))
    env = PlumeEnv({"success_radius": radius})
    env.reset(seed=0)
    draw(env.world, 0)
    assert sum("outline" in style for style in drawn) == circles


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^animation must be a path that ends in .gif, .webp or .mp4, got '.*avi'$"):
        save_animation(frames(1), tmp_path / "episode.avi")


def test_mp4_without_an_encoder_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs the extra video: pip install 'gpf-networks\[video\]'"):
        save_animation(frames(1), tmp_path / "episode.mp4")
    assert not list(tmp_path.iterdir())


def test_drawing_needs_no_path():
    env = PlumeEnv()
    env.reset(seed=0)
    assert draw(env.world, 0).shape == (480, 480, 3)
