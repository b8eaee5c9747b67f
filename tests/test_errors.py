"""The tree of errors: stable codes, one status each, and the error that arrives is the error that was raised."""

import pickle

import grpc
import pytest

from kayos.errors import KayosError, all_error_classes, rebuild_error

CLASSES = list(all_error_classes())


def test_codes_are_unique() -> None:
    codes = [error_class.code for error_class in CLASSES]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("error_class", CLASSES, ids=lambda error_class: error_class.code)
def test_every_error_has_a_status_and_survives_the_journey(error_class: type[KayosError]) -> None:
    assert error_class.status in grpc.StatusCode.__members__
    error = error_class("what is wrong: what to do", seq=7, retry_delay_ms=5)
    for copy in (rebuild_error(error.code, error.message, dict(error.fields)), pickle.loads(pickle.dumps(error))):
        assert type(copy) is error_class
        assert (copy.message, copy.fields) == (error.message, error.fields)
        assert copy.retry_delay_ms == 5


def test_an_unknown_code_of_a_newer_server_stays_readable() -> None:
    error = rebuild_error("NOT_YET_INVENTED", "words", {})
    assert type(error) is KayosError
    assert str(error) == "words"


def test_the_tree_at_the_head_of_the_file_names_every_class() -> None:
    import kayos.errors

    drawn = kayos.errors.__doc__ or ""
    assert [error_class.__name__ for error_class in CLASSES if error_class.__name__ not in drawn] == []
