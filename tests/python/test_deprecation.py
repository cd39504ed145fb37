"""Names that go: they work, and warn where they are called."""

import warnings

import pytest

from isentropic._deprecation import deprecated


@deprecated("0.3", "use isentropic.softmax")
def softargmax(x, *, axis=-1):
    """Softmax."""
    return x, axis


def test_works_and_warns_at_the_call():
    said = r"^isentropic\.softargmax is deprecated since isentropic 0\.3: use isentropic\.softmax$"
    with pytest.warns(DeprecationWarning, match=said) as record:
        assert softargmax([1], axis=0) == ([1], 0)
    assert record[0].filename == __file__
    assert softargmax.__doc__ == "Softmax." and softargmax.__name__ == "softargmax"


def test_is_an_error_where_warnings_are():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeprecationWarning):
            softargmax([1])
