"""Keys as other tools spell them, each with what to do here."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_ETA = "The learning rate is `eta`, such as eta=0.1. `eta_schedule`, `eta_decay` and `eta_warmup` change it over time."
_STEPS = (
    "Local work is counted in steps: `tau` is the number of SGD steps per client and round, `batch_size` their batch."
)
_ROUNDS = "The number of rounds is `rounds`, such as rounds=100."
_CLIENTS = "The number of clients is `clients`, such as clients=8. `clients_per_round` samples some of them per round."
_SAMPLED = "`clients_per_round` is how many clients take part in a round, such as clients_per_round=5. 0 means all."
_BATCH = "The mini-batch is `batch_size`, such as batch_size=64."
_DEVICE = "GPUs are chosen with `device`: device=cuda, device=cuda:1 for the second GPU, or device=mps."
_OPTIMIZER = (
    "The local optimizer is `optimizer`: sgd (with `momentum`) or adamw. The server has `step`: sum, adam or yogi."
)
_BITS = "A fixed number of bits is a method: method=4bit sends 4-bit levels, method=fp32 sends float32."
_LEVELS = (
    "`s0` is the number of levels at the start of AdaQuantFL. A fixed number is a method: method=4bit has 15 levels."
)
_METHOD = "The rule is `method`, the quantizer is `quantizer`. `adaquantfl methods` lists both."
_PARTITION = "Who holds which data is `partition`: iid, sorted, or dirichlet(0.3) with any alpha above 0."
_SEED = "The random seed is `seed`, such as seed=1. `adaquantfl compare --seeds 3` runs several."
_OUT = "The folder of a run is an option, not a key: --out DIR."
_ENGINE = "The engine is an option, not a key: --engine local, gloo or flower."
_WORKERS = "`workers` is the number of processes that train, such as workers=4. 0 means one per core."
_DATA = (
    "The data set is `dataset`; `adaquantfl data list` names them. Data of your own come as a task: FILE.py:FUNCTION."
)
_MODEL = "The model is `model`: cnn, resnet18 or mlp. A model of your own comes as a task: FILE.py:FUNCTION."
_SAVE = "`checkpoint_every` is the number of rounds between checkpoints, such as checkpoint_every=10."
_EVALUATE = "`evaluate_every` is the number of rounds between evaluations, such as evaluate_every=5."
_TRACKING = "A tracker is chosen with `tracking`: tensorboard, mlflow or wandb."
_PRECISION = "Mixed precision is `precision`: precision=bf16. The default is fp32."
_DECAY = (
    "`eta_decay` multiplies the learning rate every `eta_decay_every` rounds. `weight_decay` is the penalty on weights."
)
_PROX = "The factor of FedProx's penalty is `prox`, such as prox=0.01."
_CLIP = "`clip_gradient` limits the gradient of a step; `max_update_norm` limits a client's update."
_STOP = "`early_stopping` is a number of evaluations and needs `validation`; `target_loss` stops at a training loss."
_SCOPE = "`scope` says what shares one norm: tensor, whole, balanced, or a number of elements per bucket."
_TIMEOUT = "The seconds that a client may take are `round_timeout`."
_ROBUST = "`step` says how updates are combined: sum (the default), median, trimmed-mean, krum, momentum, adam or yogi."

_SAID_BY = {
    _ETA: "lr learning_rate learningrate step_size stepsize local_lr client_lr base_lr alpha lr_schedule scheduler",
    _STEPS: "epochs epoch local_epochs num_epochs n_epochs local_steps num_steps steps iterations num_iterations "
    "local_iterations max_steps",
    _ROUNDS: "num_rounds n_rounds number_of_rounds communication_rounds comm_round comm_rounds global_rounds "
    "num_server_rounds max_rounds t",
    _CLIENTS: "num_clients n_clients number_of_clients num_users users workers_count nodes num_nodes num_supernodes "
    "world_size num_partitions k",
    _SAMPLED: "fraction_fit fraction_train frac client_fraction participation participation_rate clients_sampled "
    "num_clients_per_round cohort cohort_size min_fit_clients c",
    _BATCH: "batch bs batchsize local_bs local_batch_size train_batch_size minibatch mini_batch_size b",
    _DEVICE: "gpu gpus cuda use_gpu use_cuda num_gpus gpu_id no_cuda accelerator",
    _OPTIMIZER: "optim opt optimiser client_optimizer local_optimizer adam adamw sgd",
    _BITS: "bits bit n_bits num_bits nbits bit_width bitwidth quantization_bits quant_bits b_0 wbits",
    _LEVELS: "levels level num_levels n_levels quantization_levels s s_0 quantum_num q_level",
    _METHOD: "algorithm algo rule strategy schedule compression compressor quantization quantize quant compress",
    _PARTITION: "iid noniid non_iid dirichlet dirichlet_alpha partitioner split data_split shards",
    _SEED: "random_seed random_state rng manual_seed seeds",
    _OUT: "out output output_dir outdir save_dir log_dir logdir run_dir folder",
    _ENGINE: "engine backend simulation",
    _WORKERS: "num_workers n_workers n_jobs jobs processes num_processes threads num_threads cpus",
    _DATA: "data data_dir data_path datasets dataset_name",
    _MODEL: "net network arch architecture model_name",
    _SAVE: "checkpoint save_every checkpoint_interval save_interval checkpointing",
    _EVALUATE: "eval_every eval_interval test_every log_every log_interval validate_every eval",
    _TRACKING: "wandb tensorboard mlflow logger tracker use_wandb",
    _PRECISION: "amp fp16 bf16 dtype mixed_precision autocast half",
    _DECAY: "decay lr_decay gamma wd l2",
    _PROX: "mu proximal_mu fedprox fedprox_mu",
    _CLIP: "grad_clip clip max_grad_norm clip_norm gradient_clip gradient_clipping clipping",
    _STOP: "stop early_stop target target_accuracy tolerance",
    _SCOPE: "bucket bucket_size per_layer layerwise per_tensor group_size block_size",
    _TIMEOUT: "timeout client_timeout",
    _ROBUST: "aggregation aggregator server_optimizer server_opt fedavg fedadam robust",
}
_ANSWERS = {word: answer for answer, words in _SAID_BY.items() for word in words.split()}


def as_option(option: str, valid: Iterable[str]) -> str:
    """What to do where a key is typed as an option of the command line.

    >>> as_option("rounds", ["rounds"])
    'Keys of the configuration follow --set: --set rounds=VALUE.'
    """
    key = option.lower().replace("-", "_")
    if key in valid:
        return f"Keys of the configuration follow --set: --set {key}=VALUE."
    return f"Keys of the configuration follow --set: --set KEY=VALUE. {_ANSWERS.get(key, '')}".rstrip()


def no_such_key(key: str, valid: Iterable[str]) -> str:
    """The message for a key that does not exist: what to do instead, or the nearest one that does.

    >>> no_such_key("lr", ["eta", "tau"])[:66]
    "There is no key named 'lr'. The learning rate is `eta`, such as et"
    >>> no_such_key("taus", ["eta", "tau"])
    "There is no key named 'taus'. Did you mean 'tau'? docs/configuration.md explains all keys."
    >>> no_such_key("zzz", ["eta", "tau"])
    "There is no key named 'zzz'. The keys are: eta, tau."
    """
    names, start = list(valid), f"There is no key named {key!r}."
    if answer := _ANSWERS.get(key.lower().replace("-", "_")):
        return f"{start} {answer}"
    if near := get_close_matches(key.lower(), names, n=1, cutoff=0.6):
        return f"{start} Did you mean {near[0]!r}? docs/configuration.md explains all keys."
    return f"{start} The keys are: {', '.join(names)}."
