"""What people say of images: the labelling interface, tasks, agreement and consensus."""
