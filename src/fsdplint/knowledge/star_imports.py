"""The names that ``from torch.… import *`` brings, for the modules that training scripts use so.

Source: ``__all__``, or else the public functions and classes, on torch 2.13. A release that lacks a
name would fail on it, so that no program is misread. `tests/test_knowledge.py` compares.
"""

from __future__ import annotations

from collections.abc import Mapping

# By canonical name, see `names`.
STAR_NAMES: Mapping[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "torch.distributed": """
            AllToAllOptions AllreduceCoalescedOptions AllreduceOptions Backend
            BackendConfig BarrierOptions BroadcastOptions BuiltinCommHookType DebugLevel
            DeviceMesh DistBackendError DistError DistNetworkError DistStoreError
            FileStore GatherOptions GradBucket GroupMember GroupName HashStore P2POp
            PrefixStore ProcessGroup ProcessGroupGloo QueueEmptyError ReduceOp
            ReduceOptions ReduceScatterOptions Reducer ScatterOptions Store TCPStore
            Work all_gather all_gather_coalesced all_gather_into_tensor
            all_gather_object all_gather_single all_reduce all_reduce_coalesced
            all_to_all all_to_all_single barrier batch_isend_irecv broadcast
            broadcast_object_list default_pg_timeout destroy_process_group gather
            gather_object get_backend get_backend_config get_debug_level
            get_default_backend_for_device get_global_rank get_group_rank
            get_node_local_rank get_pg_count get_process_group_ranks get_rank
            get_world_size group init_device_mesh init_process_group irecv is_available
            is_backend_available is_gloo_available is_initialized is_mpi_available
            is_nccl_available is_torchelastic_launched is_ucc_available
            is_xccl_available isend monitored_barrier new_group new_subgroups
            new_subgroups_by_enumeration record_comm recv recv_object_list reduce
            reduce_scatter reduce_scatter_single reduce_scatter_tensor
            register_rendezvous_handler rendezvous scatter scatter_object_list send
            send_object_list set_debug_level set_debug_level_from_env shrink_group
            split_group supports_complex
        """,
        "torch.distributed.checkpoint": """
            BytesStorageMetadata CheckpointException ChunkStorageMetadata
            DefaultLoadPlanner DefaultSavePlanner FileSystemReader FileSystemWriter
            HuggingFaceStorageReader HuggingFaceStorageWriter LoadPlan LoadPlanner
            Metadata QuantizedHuggingFaceStorageReader ReadItem SavePlan SavePlanner
            StorageReader StorageWriter TensorStorageMetadata WriteItem async_save load
            load_sharded_optimizer_state_dict load_state_dict save save_state_dict
        """,
        "torch.distributed.checkpoint.state_dict": """
            DictValueType FQNS_T ListDictValueType OptimizerStateType PrimitiveType
            StateDictOptions ValueType get_model_state_dict get_optimizer_state_dict
            get_state_dict set_model_state_dict set_optimizer_state_dict set_state_dict
        """,
        "torch.distributed.device_mesh": """
            DeviceMesh init_device_mesh
        """,
        "torch.distributed.fsdp": """
            BackwardPrefetch CPUOffload CPUOffloadPolicy DataParallelMeshDims FSDPModule
            FullOptimStateDictConfig FullStateDictConfig FullyShardedDataParallel
            LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision
            MixedPrecisionPolicy OffloadPolicy OptimStateDictConfig OptimStateKeyType
            ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy
            StateDictConfig StateDictSettings StateDictType UnshardHandle fully_shard
            register_fsdp_forward_method share_comm_ctx
        """,
        "torch.distributed.fsdp.wrap": """
            CustomPolicy ModuleWrapPolicy always_wrap_policy enable_wrap
            lambda_auto_wrap_policy size_based_auto_wrap_policy
            transformer_auto_wrap_policy wrap
        """,
        "torch.distributed.tensor": """
            DTensor Partial Placement Replicate Shard distribute_module
            distribute_tensor empty full ones rand randn zeros
        """,
        "torch.nn": """
            AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d
            AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d AdaptiveMaxPool2d
            AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d AvgPool3d BCELoss
            BCEWithLogitsLoss BatchNorm1d BatchNorm2d BatchNorm3d Bilinear Buffer CELU
            CTCLoss ChannelShuffle CircularPad1d CircularPad2d CircularPad3d
            ConstantPad1d ConstantPad2d ConstantPad3d Container Conv1d Conv2d Conv3d
            ConvTranspose1d ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss
            CosineSimilarity CrossEntropyLoss CrossMapLRN2d DataParallel Dropout
            Dropout1d Dropout2d Dropout3d ELU Embedding EmbeddingBag FeatureAlphaDropout
            Flatten Fold FractionalMaxPool2d FractionalMaxPool3d GELU GLU GRU GRUCell
            GaussianNLLLoss GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh
            HingeEmbeddingLoss HuberLoss Identity InstanceNorm1d InstanceNorm2d
            InstanceNorm3d KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LSTM LSTMCell
            LayerNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d
            LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d
            LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d
            LazyLinear LeakyReLU Linear LinearCrossEntropyLoss LocalResponseNorm
            LogSigmoid LogSoftmax MSELoss MarginRankingLoss MaxPool1d MaxPool2d
            MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish Module ModuleDict
            ModuleList MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss
            MultiheadAttention NLLLoss NLLLoss2d PReLU PairwiseDistance Parameter
            ParameterDict ParameterList PixelShuffle PixelUnshuffle PoissonNLLLoss
            RMSNorm RNN RNNBase RNNCell RNNCellBase RReLU ReLU ReLU6 ReflectionPad1d
            ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d
            ReplicationPad3d SELU Sequential SiLU Sigmoid SmoothL1Loss SoftMarginLoss
            Softmax Softmax2d Softmin Softplus Softshrink Softsign SyncBatchNorm Tanh
            Tanhshrink Threshold Transformer TransformerDecoder TransformerDecoderLayer
            TransformerEncoder TransformerEncoderLayer TripletMarginLoss
            TripletMarginWithDistanceLoss Unflatten Unfold UninitializedBuffer
            UninitializedParameter Upsample UpsamplingBilinear2d UpsamplingNearest2d
            ZeroPad1d ZeroPad2d ZeroPad3d
        """,
        "torch.nn.parallel": """
            DataParallel DistributedDataParallel data_parallel gather parallel_apply
            replicate scatter
        """,
        "torch.nn.utils": """
            clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_
            convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format
            fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval
            fuse_linear_bn_weights get_total_norm parameters_to_vector parametrizations
            parametrize remove_spectral_norm remove_weight_norm rnn skip_init
            spectral_norm stateless vector_to_parameters weight_norm
        """,
        "torch.optim": """
            ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam Optimizer
            RAdam RMSprop Rprop SGD SparseAdam lr_scheduler swa_utils
            swap_in_optimizer_params_and_state
        """,
        "torch.utils.data": """
            BatchSampler ChainDataset ConcatDataset DFIterDataPipe DataChunk DataLoader
            Dataset DistributedSampler IterDataPipe IterableDataset MapDataPipe
            RandomSampler Sampler SequentialSampler StackDataset Subset
            SubsetRandomSampler TensorDataset WeightedRandomSampler argument_validation
            default_collate default_convert functional_datapipe get_worker_info
            guaranteed_datapipes_determinism non_deterministic random_split
            runtime_validation runtime_validation_disabled
        """,
    }.items()
}
