"""Makes digits_scores.csv: the scores that a logistic regression gives to handwritten digits it has not seen.

scikit-learn's digits (1797 images of 8 x 8 pixels, UCI Optical Recognition of Handwritten Digits), a quarter of them
kept for testing; one line for each, labelled with the digit it is. Needs scikit-learn: python make_digits_scores.py
"""

import csv
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

images, digits = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(images / 16, digits, test_size=0.25, random_state=0, stratify=digits)
model = LogisticRegression(C=1.0, max_iter=2000).fit(train_x, train_y)
print(f"accuracy on the {len(test_y)} test images: {model.score(test_x, test_y):.4f}")

with Path(__file__).with_name("digits_scores.csv").open("w", newline="") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["digit", *NAMES])
    for digit, scores in zip(test_y, model.decision_function(test_x), strict=True):
        writer.writerow([NAMES[digit], *(f"{score:.6g}" for score in scores)])
