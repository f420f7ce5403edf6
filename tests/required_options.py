"""Options that tests of the command line leave out."""


def with_required(arguments):
    """Add options that a test does not name: the required ones (logits, seeds), VAD, and a format to parse."""
    words = [str(word) for word in arguments]
    missing = {}
    if words[:1] == ["collect"] or (words[:1] in (["fit"], ["evaluate"]) and not words[1].endswith(".json")):
        missing["--scale"] = "logit"
    if words[:1] == ["evaluate"] and "--map" in words:  # the map knows its scale
        missing = {}
    if words[:1] == ["fit"]:
        missing |= {"--replicas": "seeds", "--method": "vad"}
    if words[:1] in (["collect"], ["fit"], ["apply"], ["evaluate"]):
        missing["--format"] = "json"
    return words + [word for name, value in missing.items() if name not in words for word in (name, value)]
