"""What a mask costs, predicted without running anything: the command ``explain``."""
