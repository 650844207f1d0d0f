"""Lightning's `FSDPStrategy`, of a trainer or a `Fabric`, to its `ModelParallelStrategy`."""
