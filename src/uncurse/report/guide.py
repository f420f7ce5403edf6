"""How to read the page, in plain words."""

GUIDE = (
    (
        "Calibration error",
        "The sum of predictions over the sum of what came, less one, on the rows that were kept. +10% means that for "
        "every 110 clicks promised, 100 came. Scores can be right on average and still be too high where it matters: "
        "the best of many noisy scores are more often lucky than good.",
    ),
    (
        "Interval",
        "Were the evaluation repeated on other rows of the same kind, 95 of 100 such intervals would hold the true "
        "error. An error whose interval holds zero cannot be told from none.",
    ),
    (
        "ECE, MCE and the floor",
        "Rows are put in bins by their prediction; ECE is the mean gap between prediction and rate over bins, MCE the "
        "largest. Both are above zero even for perfect predictions, since rates in bins are noisy. The floor is that "
        "noise; compare with it, not with zero.",
    ),
    (
        "λ",
        "How much of the spread of the scores is signal, seen from how far replicas of the model disagree. 1 means no "
        "noise; 0.8 means that a score's distance from the centre is, on average, a quarter too large. In tandem with "
        "a calibrator λ is what is left to do after it, and may exceed 1. Its error here is over pool rows only: train "
        "again, and λ moves by more than that.",
    ),
    (
        "Drift",
        "A map belongs to the pool it was fitted to, and a calibrator to the labels it was fitted on. If the scores it "
        "is used on have moved by a few tenths of a standard deviation, fit again on a pool like the one being served.",
    ),
    (
        "What a map does not do",
        "It does not change the ranking (with groups: within a group), so it neither finds better candidates nor loses "
        "any; it makes the numbers true. It is made for the rows that are kept: the mean over all rows may get worse. "
        "Where scores are far from Gaussian, or some are much noisier than others, one "
        "λ over-corrects: the errors measured on this page tell.",
    ),
    (
        "What to do about an error that is left",
        "If a map under-predicts and the scores are about Gaussian, fit with --curvature. If replicas were trained on "
        "bootstraps, say so with --replicas: the formulas differ. With labelled rows, fit with --method tower, or in "
        "tandem with a calibrator; where groups differ in noise, fit by group; --method auto chooses. "
        "Then compare the maps on one page.",
    ),
)

__all__ = ["GUIDE"]
