"""From a file and overrides to a checked recipe; every mistake is one sentence that says where and what instead."""

from pathlib import Path

import pytest

from prorl.build import data_folder
from prorl.config.recipe import RecipeError, changed, check, differences, load_recipe, recipe_folders, to_json
from prorl.config.schema import TaskConfig
from support.recipes import recipe

BASE = "model: {path: m}\ntasks: {arithmetic: {}}\n"


@pytest.fixture
def write(tmp_path: Path):
    """Writes a recipe file and returns its path."""

    def written(name: str, text: str) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        return str(path)

    return written


def test_a_recipe_is_called_after_its_file_unless_it_says_otherwise(write):
    assert load_recipe(write("small", BASE)).name == "small"
    assert load_recipe(write("small", BASE + "name: other\n")).name == "other"
    assert load_recipe(write("small.v2", BASE).removesuffix(".yaml")).name == "small.v2"


def test_what_a_recipe_does_not_say_is_the_default(write):
    assert to_json(load_recipe(write("r", BASE + "steps: 5\n"))) == to_json(recipe()) | {
        "tasks": {"arithmetic": TaskConfig().model_dump(mode="json")},
        "steps": 5,
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stepz: 5\n", "unknown key 'stepz': did you mean 'steps'?"),
        ("lr: 1\n", "unknown key 'lr': did you mean 'optimizer.lr' or 'model.warmup.lr'?"),
        ("micro_batch_tokens: 9\n", "did you mean 'learner.micro_batch_tokens'?"),
        ("mode: warn\n", "'detectors.mismatch.mode' or 'detectors.no_signal.mode'?"),
        ("kl: {coeff: 1}\n", "unknown key 'kl.coeff': did you mean 'kl.coef'?"),
        ("model: {path: m, shape: {layer: 1}}\n", "'model.shape.layer': did you mean 'model.shape.layers'?"),
        ("tasks: {arithmetic: {wieght: 1}}\n", "did you mean 'tasks.arithmetic.weight'?"),
        ("stages: [{at: 1}, {at: 5, mix: {}}]\n", "'stages.1.mix': did you mean 'stages.1.mixture'?"),
        ("kl: {coef: {ramp: linear, strat: 0}}\n", "'kl.coef.strat': did you mean 'kl.coef.start'?"),
        ("kl: {coef: {points: [[0, 1]], zzz: 0}}\n", "unknown key 'kl.coef.zzz'; known here: points"),
        ("clip: {zzz: 1}\n", "unknown key 'clip.zzz'; known here: low, high, dual"),
        ("steps: 0\nzzz: 1\n", "greater than 0, not 0; unknown key 'zzz'"),  # all mistakes at once
        ("a: [", "cannot be read"),
        ("a: 1\na: 2\n", "cannot be read"),
        ("\tx: 1\n", "cannot be read"),
        ("3\n", "cannot be read"),
        ("[1, 2]\n", "is not a mapping of settings"),
        ("name: ${nowhere}\n", "nowhere"),
        # No settings, and nothing to leave out.
        ("tasks: {arithmetic: }\n", "tasks.arithmetic: Input should be"),
        ("extends: x\n", "does a recipe extend itself"),
        (
            "stages: [{at: 5, optimizer: clear}]\n",
            "optimizer: clear has an effect with reset_reference: true",
        ),
        ("extends: nowhere_to_be_found\n", "no recipe 'nowhere_to_be_found'"),
        ("extends: parent\nsampling: [1]\n", "x.yaml: "),  # a list in the place of a section
        ("extends: parent\nkl: [1]\n", "x.yaml: "),
        ("extends: ${base}\n", "x.yaml cannot be read"),
        ("optimizer: {lr: {start: 0, end: 1e-4, steps: 10}}\n", "key 'optimizer.lr.ramp' is missing"),
        ("optimizer: {lr: {points: [[0, a]]}}\n", "optimizer.lr.points.0.1: "),
        ("tasks: {me/set: {kind: math, path: x.jsonl}}\n", "'me/set' cannot be the name of a file"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence_that_names_it(write, text, told):
    write("parent", BASE + "sampling: {temperature: 1.5}\n")
    broken = told in ("cannot be read", "is not a mapping of settings")
    kept = "".join(line for line in BASE.splitlines(keepends=True) if line[:5] != text[:5])
    path = write("x", text if broken else kept + text)
    with pytest.raises(RecipeError) as error:
        load_recipe(path)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("no recipe" if "nowhere_" in text else path)


@pytest.mark.parametrize(("text", "missing"), [("", "model"), ("model: {path: m}\n", "tasks")])
def test_a_missing_key_is_named(write, text, missing):
    with pytest.raises(RecipeError, match=f"key '{missing}' is missing"):
        load_recipe(write("r", text))


def test_a_file_that_is_no_text_is_told_so(tmp_path):
    (tmp_path / "r.yaml").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(RecipeError, match=r"r\.yaml cannot be read"):
        load_recipe(str(tmp_path / "r.yaml"))


@pytest.mark.parametrize(("name", "told"), [("nanoo", "did you mean 'nano'"), ("zzzz", "known recipes are")])
def test_a_missing_recipe_is_told_the_nearest_and_all(name, told):
    with pytest.raises(RecipeError) as error:
        load_recipe(name)
    assert told in str(error.value)
    names = sorted({path.stem for folder in recipe_folders() for path in folder.glob("*.yaml")})
    assert ", ".join(names) in str(error.value)


def test_a_recipe_takes_up_another_one_and_says_what_differs(write):
    write("parent", BASE + "name: p\nkl: {coef: 0.5, estimator: k3}\nclip: {dual: 3}\n")
    child = load_recipe(write("child", "extends: parent\nkl: {coef: 0.25}\nclip: {dual: null}\n"))
    assert (child.name, child.kl.coef, child.kl.estimator, child.clip.dual) == ("child", 0.25, "k3", None)


def test_what_a_recipe_extends_is_beside_it_wherever_it_is_called(write, tmp_path, monkeypatch):
    write("parent", BASE + "steps: 111\n")
    child = write("child", "extends: parent.yaml\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "parent.yaml").write_text(BASE + "steps: 999\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_recipe(child).steps == 111


def test_data_beside_a_recipe_is_its_own_wherever_the_recipe_is_called(tmp_path, monkeypatch):
    """Two projects with the same file names share nothing that is prepared."""
    own = "model: {path: m}\ntasks: {mine: {kind: math, path: rows.jsonl}}\n"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "r.yaml").write_text(own)
        (tmp_path / name / "rows.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    monkeypatch.chdir(tmp_path / "a")
    here, there = load_recipe("r.yaml"), load_recipe("../b/r.yaml")
    assert here.tasks["mine"].path == str(tmp_path / "a" / "rows.jsonl")
    assert data_folder(here) != data_folder(there)
    assert (
        load_recipe("../b/r.yaml", ["tasks.mine.path=rows.jsonl"]).tasks["mine"].path
        == here.tasks["mine"].path
    )


def test_data_and_a_model_beside_a_recipe_are_found_from_everywhere(tmp_path, monkeypatch):
    (tmp_path / "a" / "m").mkdir(parents=True)
    (tmp_path / "a" / "r.yaml").write_text("model: {path: m}\ntasks: {arithmetic: {}}\ndata: prepared\n")
    monkeypatch.chdir(tmp_path)
    config = load_recipe("a/r.yaml")
    assert (config.model.path, config.data) == (str(tmp_path / "a" / "m"), str(tmp_path / "a" / "prepared"))
    config = load_recipe("a/r.yaml", ["model.path=m", "data=d"])
    assert (config.model.path, config.data) == ("m", str(tmp_path / "d"))


def test_what_a_start_fills_in_makes_way_for_what_is_said_later():
    mine = {"use": "t.py:T", "levels": {"1": 1.0, "2": 1.0}}
    rows = {"kind": "math", "path": "x.jsonl", "revision": "0f"}
    config = check({"name": "r", "model": {"path": "m"}, "tasks": {"mine": mine, "rows": rows}}, "r")
    for said in ({1: 3.0}, {2: 1.0}):
        assert changed(config, {}, [f"tasks.mine.levels={said}"]).tasks["mine"].levels == said
    assert changed(config, {}, ["tasks.mine.use=t.py:Other"]).tasks["mine"].levels == {}
    assert changed(config, {}, ["tasks.mine.weight=2"]).tasks["mine"].levels == {1: 1.0, 2: 1.0}
    assert changed(config, {}, ["tasks.rows.path=y.jsonl"]).tasks["rows"].revision is None
    for kept in ("tasks.rows.weight=2", "tasks.rows.path=x.jsonl"):
        assert changed(config, {}, [kept]).tasks["rows"].revision == "0f"


def test_levels_are_overridden_however_they_are_written(write):
    write("base", BASE)
    path = write("levels", "extends: base\ntasks: {linear_equation: {levels: {1: 4, 2: 1}}}\n")
    config = load_recipe(path, ["tasks.linear_equation.levels.1=7", "tasks.linear_equation.levels={3: 2}"])
    assert config.tasks["linear_equation"].levels == {1: 7, 2: 1, 3: 2}


def test_extending_goes_through_generations_and_adds_tasks(write):
    write("a", BASE + "steps: 1\nseed: 1\n")
    write("b", "extends: a\nsteps: 2\ntasks: {countdown: {}}\n")
    grandchild = load_recipe(write("c", "extends: b\n"))
    assert (grandchild.name, grandchild.steps, grandchild.seed) == ("c", 2, 1)
    assert list(grandchild.tasks) == ["arithmetic", "countdown"]


def test_a_child_and_an_override_leave_tasks_out(write):
    write("a", "model: {path: m}\ntasks: {arithmetic: {}, countdown: {}, one_liner: {weight: 3}}\n")
    child = write("b", "extends: a\ntasks: {arithmetic: null}\n")
    assert list(load_recipe(child).tasks) == ["countdown", "one_liner"]
    config = load_recipe(child, ["tasks.one_liner=null"])
    assert list(config.tasks) == ["countdown"]
    assert changed(load_recipe(child), {}, ["tasks.one_liner=null"]).tasks == config.tasks
    again = write("c", "extends: b\ntasks: {arithmetic: {weight: 2}}\n")
    assert load_recipe(again).tasks["arithmetic"].weight == 2


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("tasks.arithmetik=null", "no task 'arithmetik' to leave out; did you mean 'arithmetic'?"),
        ("tasks.zzz=null", "no task 'zzz' to leave out; see its `tasks`"),
        ("tasks.arithmetic=null", "tasks: Dictionary should have at least 1 item"),
        ("steps=???", "Missing mandatory value: steps"),
        *((odd, "not of the form section.key=value") for odd in ("steps", "=5", "steps 5", "[=1")),
        *((odd, "") for odd in ("name=[", "sampling=3", "sampling.temperature.x=3", "name=${x")),
        *((odd, "") for odd in ("stages.0.at=5", "stages.at={}", "steps=many")),
        ("tasks=[arithmetic]", "tasks: a list stands where keys with values are meant"),
        ("tasks.arithmetic.split=test", "`split` is about rows of data, and this task makes its problems"),
        ("tasks.mine={path: rows.jsonl}", "tasks.mine: say how its rows are judged: by `kind` (math"),
    ],
)
def test_an_override_that_makes_no_sense_is_told_in_one_sentence(write, override, told):
    with pytest.raises(RecipeError) as error:
        load_recipe(write("r", BASE + "stages: [{at: 3}]\n"), [override])
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("override", ["cluster.learners=8", "cluster.address=auto", "cluster={engines: 2}"])
def test_settings_of_a_cluster_are_refused_in_one_process(write, override):
    here, there = write("here", BASE), write("there", BASE + "backend: ray\n")
    told = f"{override} has no effect in one process: add --backend ray"
    with pytest.raises(RecipeError) as error:
        load_recipe(here, [override])
    assert str(error.value) == told
    with pytest.raises(RecipeError) as error:
        changed(load_recipe(there), {}, ["backend=local", override])
    assert str(error.value) == told
    assert load_recipe(here, [override, "backend=ray"]) != load_recipe(here, ["backend=ray"])
    assert changed(load_recipe(there, [override]), {}, ["backend=local"]).backend == "local"


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("steps=7", "steps", 7),
        ("kl.coef=1e-2", "kl.coef", 0.01),
        ("reset.kl_ceiling=null", "reset.kl_ceiling", None),
        ("tasks.arithmetic.levels={1: 2}", "tasks.arithmetic.levels", {"1": 2.0}),
        ("kl.coef={ramp: linear, start: 0, end: 1, steps: 5}", "kl.coef.steps", 5),
        ("stages=[{at: 3, mixture: {arithmetic: 2}}]", "stages", 1),
        # False to YAML.
        ("detectors.stalled_validation.mode=off", "detectors.stalled_validation.mode", "off"),
        ("detectors.stalled_validation={mode: off}", "detectors.stalled_validation.mode", "off"),
    ],
)
def test_an_override_replaces_one_key(write, override, key, value):
    data = to_json(load_recipe(write("r", BASE + "reset: {kl_ceiling: 0.5}\n"), [override]))
    for part in key.split("."):
        data = data[part]
    assert (len(data) if isinstance(data, list) else data) == value


def test_a_schedule_of_another_form_replaces_one(write):
    ramped = write("r", BASE + "optimizer: {lr: {ramp: linear, start: 0, end: 1, steps: 5}}\n")
    points = to_json(load_recipe(ramped, ["optimizer.lr={points: [[0, 1.0], [9, 0.5]]}"]))["optimizer"]["lr"]
    assert points == {"points": [[0, 1.0], [9, 0.5]]}
    assert to_json(load_recipe(ramped, ["optimizer.lr={steps: 7}"]))["optimizer"]["lr"]["steps"] == 7


def test_the_last_override_wins(write):
    assert load_recipe(write("r", BASE), ["steps=7", "steps=8"]).steps == 8


def test_a_recipe_can_be_stored_and_one_that_is_changed_is_checked_again():
    config = recipe(kl={"coef": {"points": [[0, 1], [5, 2]]}}, stages=[{"at": 3, "set": {"kl.coef": 1}}])
    assert check(to_json(config), "stored") == config
    renamed = changed(config, {"name": "branch"}, ["kl.coef=0.5"])
    assert (renamed.name, renamed.kl.coef, renamed.steps) == ("branch", 0.5, config.steps)
    assert changed(config, {}, []) == config
    with pytest.raises(RecipeError, match=r"clip\.high"):
        changed(config, {}, ["clip.high=0.1"])


@pytest.mark.parametrize(
    "text", ["${x}", r"\${x}", r"\\${x}", r"\\\${x}\${x}", "${", "$${x}$", r"$\{x}\\", "x}"]
)
def test_what_looks_like_an_interpolation_in_a_resolved_recipe_is_text(text):
    config = recipe(instruction=text)
    assert changed(config, {}, []) == config


def test_differences_are_told_by_dotted_keys():
    mine, theirs = to_json(recipe(kl={"coef": 0.5}, steps=5)), to_json(recipe())
    assert differences(mine, theirs) == ["kl.coef: 0.0001 → 0.5", "steps: 3000 → 5"]
    assert differences(mine, mine) == []


def test_the_shape_of_a_model_goes_with_its_path():
    same = load_recipe("prorl_v2", ["model.path=deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "steps=5"])
    assert same.model.parameters == 1.777e9
    other = load_recipe("prorl_v2", ["model.path=Qwen/Qwen3-0.6B"])
    assert (other.model.shape, other.model.parameters) == (None, None)
    assert load_recipe("prorl_v2", ["model.path=my/model", "model.parameters=6e8"]).model.parameters == 6e8
    assert load_recipe("brorl").model.shape == load_recipe("prorl_v2").model.shape
