"""What the adapters of the Pallas libraries share: arrays, masks, and compiled kernels that are kept."""
