"""From a recipe's name and overrides to a checked `RunConfig`; every mistake is one sentence with the way out."""

import difflib
import json
import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args, get_origin

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml import MarkedYAMLError, YAMLError

from prorl.config.checks import contradictions, no_room
from prorl.config.fields import FORMS
from prorl.config.schema import RUNTIME_SECTIONS, RunConfig
from prorl.envs.errors import ProrlError, nearest
from prorl.envs.extensions import absolute

DEEP = 9  # levels of nesting; no recipe has more
MAX_EXTENDS = 8
MOST_NAMED = 3  # keys of which one may have been meant


class RecipeError(ProrlError):
    """A recipe that cannot be used, said in one sentence."""


def recipe_folders() -> tuple[Path, ...]:
    """Where recipes are looked for by name: the working directory's, the source tree's, the installed ones."""
    package = Path(__file__).parent.parent
    return Path("recipes"), package.parent.parent / "recipes", package / "recipes"


def load_recipe(recipe: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Load a recipe by path or name, follow `extends`, apply `section.key=value` overrides, and check it all.

    A recipe that extends another one, and an override, leave a task out by `tasks.NAME=null`. RecipeError for a
    broken file, an unknown key, a wrong value, settings that contradict each other, or an override without effect.
    """
    return _checked(_merge_chain(_find(recipe, Path())), overrides, recipe)


def changed(config: RunConfig, settings: Mapping[str, Any], overrides: Sequence[str]) -> RunConfig:
    """A resolved recipe with top-level settings and dotted overrides replaced, checked as by `load_recipe`."""
    resolved = _rewritten(to_json(config) | dict(settings), _literal)
    return _checked(OmegaConf.create(resolved), overrides, config.name, settled=True)


def _literal(said: str) -> str:
    """A resolved text as OmegaConf gives it back: `${` in it is text."""
    return re.sub(r"(\\*)\$\{", lambda found: 2 * found[1] + r"\${", said)


def check(data: Mapping[Any, Any], source: str) -> RunConfig:
    """Plain data as a `RunConfig`; RecipeError names the key, what is wrong with it, and the nearest known one."""
    try:
        config = RunConfig.model_validate(data)
    except ValidationError as error:
        raise RecipeError(f"{source}: {'; '.join(_explain(error))}") from None
    for problem in contradictions(config):
        raise RecipeError(f"{source}: {problem}")
    return config


def longest_limit(config: RunConfig) -> int:
    """The largest limit on the tokens of a response, of all stages."""
    stages: Iterator[int] = (stage.set.get("sampling.response_limit", 0) for stage in config.stages)
    return max([config.sampling.response_limit, *stages])


def require_room(config: RunConfig, context: int) -> None:
    """Raises RecipeError where no prompt fits beside a response of the longest limit into a model's context."""
    if longest_limit(config) >= context:
        raise RecipeError(no_room(longest_limit(config), context))


def to_json(config: RunConfig) -> dict[str, Any]:
    """The resolved recipe as plain JSON data, every default written out."""
    return config.model_dump(mode="json")


def result_settings(config: RunConfig) -> dict[str, Any]:
    """What a resolved recipe says about the result, without its runtime settings."""
    return config.model_dump(mode="json", exclude=set(RUNTIME_SECTIONS))


def config_hash(config: RunConfig) -> str:
    """Identity of everything that a resolved recipe says about the result."""
    text = json.dumps(result_settings(config), sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def differences(mine: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted keys on which two resolved recipes, or other settings, differ: `key: theirs → mine`."""
    found: list[str] = []
    for key in sorted(mine.keys() | theirs.keys()):
        left, right = mine.get(key), theirs.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            found += differences(left, right, f"{prefix}{key}.")
        elif left != right:
            found.append(f"{prefix}{key}: {right!r} → {left!r}")
    return found


def flat(settings: Mapping[str, Any], depth: int = DEEP, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by dotted key, as far down as `depth` says."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value and depth:
            yield from flat(value, depth - 1, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _find(recipe: str, beside: Path) -> Path:
    direct = [beside / recipe, Path(recipe), beside / f"{recipe}.yaml"]
    named = [folder / f"{recipe}.yaml" for folder in recipe_folders()]
    for path in (*direct, *named):
        if path.is_file():
            return path
    names = sorted({path.stem for folder in recipe_folders() for path in folder.glob("*.yaml")})
    hint = nearest(recipe, names, "check the name;", cutoff=0.4)
    raise RecipeError(f"no recipe {recipe!r}: {hint} known recipes are {', '.join(names)}")


def _merge_chain(path: Path, depth: int = 0) -> DictConfig:
    if depth == MAX_EXTENDS:
        raise RecipeError(f"{path}: `extends` goes deeper than {MAX_EXTENDS}; does a recipe extend itself?")
    try:
        loaded = _with_text_keys(OmegaConf.load(path))
        if not isinstance(loaded, DictConfig):
            raise RecipeError(f"{path} is not a mapping of settings")
        _place(loaded, path.parent)
        if "name" not in loaded:
            loaded.name = path.stem
        parent = loaded.pop("extends", None)
        if parent is None:
            return loaded
        return merge(_merge_chain(_find(str(parent), path.parent), depth + 1), loaded, str(path))
    except (YAMLError, OmegaConfBaseException, RecursionError, ValueError, OSError) as error:
        raise RecipeError(f"{path} cannot be read as YAML settings: {_first_line(error)}") from None


def _checked(
    recipe: DictConfig, overrides: Sequence[str], source: str, *, settled: bool = False
) -> RunConfig:
    try:
        for override in overrides:
            key, equals, value = override.partition("=")
            if not equals or not key or key.startswith("["):
                raise RecipeError(f"override {override!r} is not of the form section.key=value")
            if value.strip() == "{}" and OmegaConf.is_dict(OmegaConf.select(recipe, key)):
                raise RecipeError(
                    f"override {override!r} changes nothing: say which keys of {key} to set or leave out"
                )
        said = OmegaConf.from_dotlist(list(overrides))
        OmegaConf.to_container(said, throw_on_missing=True)  # or ??? would be as if nothing were said
        asked = _with_text_keys(said)
        _place(asked, Path())
        merged = merge(recipe, asked, source, settled=settled)
        data = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except (YAMLError, OmegaConfBaseException, RecursionError, ValueError) as error:
        raise RecipeError(f"{source}: {_first_line(error)}") from None
    assert isinstance(data, dict)
    config = check(data, source)
    idle = next((change for change in overrides if change.startswith(("cluster.", "cluster="))), None)
    if idle is not None and config.backend != "ray":
        raise RecipeError(f"{idle} has no effect in one process: add --backend ray")
    return config


def merge(base: DictConfig, top: DictConfig, source: str, *, settled: bool = False) -> DictConfig:
    """Settings on top of others; what replaces a schedule or a model takes nothing of the old one's form or shape.

    `settled`: the others are a run's, for which `build.settled` has filled in what the recipe did not say.
    """
    base, listed = base.copy(), _plain_tasks(base)
    try:
        for key in ("optimizer.lr", "kl.coef"):
            old, new = OmegaConf.select(base, key), OmegaConf.select(top, key)
            if OmegaConf.is_dict(old) and OmegaConf.is_dict(new) and ("points" in old) != ("points" in new):
                OmegaConf.update(base, key, None)  # another form of schedule replaces it
        if OmegaConf.select(top, "model.path") not in (None, OmegaConf.select(base, "model.path")):
            for key in ("model.shape", "model.parameters"):  # of another model
                OmegaConf.update(base, key, None)
        for name, task in _plain_tasks(top).items():
            old, said = listed.get(name), task if isinstance(task, dict) else {}
            if isinstance(old, dict) and said.get("path") not in (None, old.get("path")):
                base.tasks[name].revision = None  # of other rows
            filled_in = settled and old and old["use"] and {*old["levels"].values()} == {1}  # nobody's choice
            if filled_in and {"use", "levels"} & said.keys():
                base.tasks[name].levels = {}
        merged = OmegaConf.merge(base, top)
    except (TypeError, OmegaConfBaseException) as error:
        plain: Any = OmegaConf.to_container(top)
        lists = [key for key, value in flat(plain) if isinstance(value, list)]
        wrong = next((key for key in lists if OmegaConf.is_dict(OmegaConf.select(base, key))), "")
        why = f"{wrong}: a list stands where keys with values are meant" if wrong else _first_line(error)
        raise RecipeError(f"{source}: {why}") from None
    assert isinstance(merged, DictConfig)
    for name in [name for name, task in _plain_tasks(top).items() if task is None]:
        if name not in listed:
            hint = nearest(name, map(str, listed), "see its `tasks`")
            raise RecipeError(f"{source}: there is no task {name!r} to leave out; {hint}")
        del merged.tasks[name]
    return merged


def _with_text_keys(settings: Any) -> Any:
    """The same with every key as text: 1 and "1" are one level."""
    return OmegaConf.create(_rewritten(OmegaConf.to_container(settings), str))


def _rewritten(value: Any, text: Callable[[str], str]) -> Any:
    """Plain data with every key as text, and `text` of every text."""
    if isinstance(value, dict):
        return {str(key): _rewritten(inner, text) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rewritten(inner, text) for inner in value]
    return text(value) if isinstance(value, str) else value


def _place(recipe: DictConfig, folder: Path) -> None:
    """Make paths of the user's own code and prepared data absolute, and those of rows and models that are there."""
    if isinstance(said := OmegaConf.select(recipe, "data"), str):
        recipe.data = str((folder / said).resolve())
    if isinstance(said := OmegaConf.select(recipe, "model.path"), str) and os.path.isdir(folder / said):
        recipe.model.path = str((folder / said).resolve())
    for name, task in _plain_tasks(recipe).items():
        for key, said in task.items() if isinstance(task, dict) else ():
            if not isinstance(said, str):
                continue
            if key in ("use", "grade"):
                recipe.tasks[name][key] = absolute(said, folder)
            elif key == "path" and (folder / said).exists():
                recipe.tasks[name][key] = str((folder / said).resolve())


def _plain_tasks(recipe: DictConfig) -> Mapping[Any, Any]:
    """What a recipe says of tasks, by name; nothing where it says no section."""
    data = OmegaConf.to_container(recipe)
    tasks = data.get("tasks") if isinstance(data, dict) else None
    return tasks if isinstance(tasks, dict) else {}


def _explain(error: ValidationError) -> Iterator[str]:
    for detail in error.errors():
        # Pydantic names the branch of a union in the place; a reader of the recipe knows only the key.
        place = [*detail["loc"]]
        if form := next((part for part in place[:-1] if part in FORMS), None):
            place.remove(form)
        where = ".".join(map(str, place))
        if detail["type"] == "extra_forbidden":
            yield f"unknown key {where!r}{_nearest_key(detail)}"
        elif detail["type"] == "missing":
            yield f"key {where!r} is missing"
        elif detail["type"] == "value_error":
            yield detail["msg"].removeprefix("Value error, ")
        else:
            yield f"{where}: {detail['msg']}, not {reprlib.repr(detail['input'])}"


def _nearest_key(detail: ErrorDetails) -> str:
    *path, unknown = (str(part) for part in detail["loc"])
    model: type[BaseModel] = RunConfig
    for part in path:
        field = model.model_fields.get(part)  # None: it is a key of a mapping, and the model stays
        model = FORMS.get(part) or next(_models(field and field.annotation), model)
    known = list(model.model_fields)
    near = sorted((key for key in _keys(RunConfig) if key.endswith(f".{unknown}")), key=len)[:MOST_NAMED]
    if not near and (close := difflib.get_close_matches(unknown, known, n=1, cutoff=0.5)):
        near = [".".join([*(part for part in path if part not in FORMS), *close])]
    return f": did you mean {' or '.join(map(repr, near))}?" if near else f"; known here: {', '.join(known)}"


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """All keys of a recipe that do not lie in a mapping with names of the user's own."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        if get_origin(field.annotation) is not dict:
            for inner in _models(field.annotation):
                yield from _keys(inner, f"{prefix}{name}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The pydantic models inside a field's annotation, through optionals and containers."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _first_line(error: Exception) -> str:
    if isinstance(error, RecursionError) or "maximum nesting depth" in str(error):  # libyaml's own limit
        return "it is nested too deeply"
    if isinstance(error, MarkedYAMLError):
        place = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        return " ".join(filter(None, (error.context, error.problem))) + place
    return " ".join(str(error).split("\n")[:2]).strip()
