"""The example driver, `gpu.example.com`: made-up GPUs that every lab can have."""
