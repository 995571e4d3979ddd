import pytest

from prorl.envs.datasets.catalogue import SOURCES, resolve
from prorl.envs.datasets.records import DataError, SourceRequest
from support.data_rows import ROWS

DOMAINS = {"math", "code", "stem", "instruct"}


def test_every_source_has_rows_in_the_tests():
    assert set(ROWS) == set(SOURCES)


@pytest.mark.parametrize("source", SOURCES.values(), ids=list(SOURCES))
def test_a_source_says_where_it_lies_and_what_it_may_be_used_for(source):
    assert source.hub.count("/") == 1
    assert source.domain in DOMAINS
    assert set(source.where) <= set(source.optional)
    assert not set(source.columns) & set(source.optional)


def test_the_training_data_covers_the_domains_of_prorl():
    assert {source.domain for source in SOURCES.values() if source.use == "train"} == DOMAINS


def test_a_data_set_of_ones_own_trains():
    source = resolve(SourceRequest(name="mine", kind="code", path="rows.jsonl"))
    assert (source.use, source.domain, source.hub) == ("train", "code", None)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (SourceRequest(name="deepscalar"), "did you mean deepscaler"),
        (SourceRequest(name="mine"), "say tasks.mine.kind"),
        (SourceRequest(name="mine", kind="math"), "tasks.mine.path=FILE"),
        (SourceRequest(name="aime24", kind="math", path="x"), "drop `kind`"),
    ],
)
def test_a_request_that_means_nothing_says_how_to_mean_something(request_, sentence):
    with pytest.raises(DataError, match=sentence):
        resolve(request_)
