"""What writes files.

Source: the documentation of Python 3.10 to 3.14 and of the libraries, numpy 2.4, pandas 3.0,
matplotlib 3.11, torch 2.13, torchvision 0.28.
"""

from __future__ import annotations

# They open the file of their first argument; the second, `mode`, says whether to write it.
OPENS = frozenset({"open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"})
# They open the file of this parameter to write what a program logs; the first one is its place.
OPENS_LOG = {
    "logging.FileHandler": (0, "filename"),
    "logging.handlers.RotatingFileHandler": (0, "filename"),
    "logging.handlers.TimedRotatingFileHandler": (0, "filename"),
    "logging.basicConfig": (99, "filename"),
}
# They write files of their own to the folder of this parameter, their first.
WRITES_FOLDER = {
    "torch.utils.tensorboard.SummaryWriter": "log_dir",
    "torch.utils.tensorboard.writer.SummaryWriter": "log_dir",
    "tensorboardX.SummaryWriter": "logdir",
}

# They change files, and return nothing that a program needs.
CHANGES_FILES = frozenset(
    {
        *(f"os.{name}" for name in ("remove", "rename", "replace", "rmdir", "unlink")),
        *(f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move", "rmtree")),
        *(f"numpy.{name}" for name in ("save", "savetxt", "savez", "savez_compressed")),
        *(f"matplotlib.pyplot.{name}" for name in ("savefig", "imsave")),
        *(f"imageio.{name}" for name in ("imsave", "imwrite", "mimsave", "mimwrite")),
        *(f"imageio.v2.{name}" for name in ("imsave", "imwrite", "mimsave", "mimwrite")),
        *("cv2.imwrite", "joblib.dump", "scipy.io.savemat", "scipy.io.wavfile.write"),
        *("soundfile.write", "torchaudio.save", "torchvision.utils.save_image"),
    }
)
# Methods that do so for any object of a common library that has them.
CHANGES_FILES_BY_METHOD = frozenset(
    {
        *("savefig", "to_csv", "to_excel", "to_json", "to_parquet", "to_pickle"),
        *("write_bytes", "write_html", "write_image", "write_text", "unlink"),
    }
)
# Libraries whose objects have a method `save` that writes a file.
SAVE = "save"
SAVES_BY_METHOD = ("PIL.", "matplotlib.animation.")

# They run a command, which may create any file.
RUNS_COMMAND = frozenset(
    {
        "os.system",
        *(f"subprocess.{name}" for name in ("call", "check_call", "check_output", "run")),
    }
)

# Functions and methods, by last name, that ask whether a file or folder is there, and those that
# create a folder.
ASKS_FOR_FILE = frozenset({"exists", "isdir", "isfile", "is_dir", "is_file"})
CREATES_FOLDER = frozenset({"makedirs", "mkdir"})
