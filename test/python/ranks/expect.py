"""Checks that a call raises an error. It imports nothing, because programs with and without torch use it."""


def raises(kinds, words, function, *arguments, **named):
    """The exception that the call raises; it has to be of one of the kinds and hold all the words."""
    try:
        function(*arguments, **named)
    except kinds as error:
        for word in [words] if isinstance(words, str) else words:
            if word not in str(error):
                raise AssertionError(f"{word!r} is not in: {error}") from error
        return error
    raise AssertionError(f"nothing was raised; wanted {kinds} with {words}")


def raises_late(kinds, words, function, *arguments, **named):
    """As raises, for a rank that calls after the others have failed. One call may succeed: the data of the others has
    come, and the news of their failure is on its way."""
    try:
        function(*arguments, **named)
    except kinds:
        pass
    return raises(kinds, words, function, *arguments, **named)
