"""What only a GPU needs: kernels of the encoder, and batches that travel to it packed and fill tensors that stay."""
