import torch

# Several test processes share few cores; more threads would only fight for them.
torch.set_num_threads(1)
