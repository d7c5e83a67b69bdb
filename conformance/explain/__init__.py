"""The command ``explain``: what a mask costs, predicted without running anything.

In comes a mask as it is named on the command line, with lengths, block sizes and heads. Out goes a `Study`, printed
as text, JSON, a page or a picture. Four packages, each of which imports only those before it:

- `language` reads the mask;
- `blocks` cuts it into blocks and labels them;
- `costs` counts steps, fetches and memory for every layout, and puts them together in a `Study`;
- `output` writes the study, and the advice that follows from it.
"""
