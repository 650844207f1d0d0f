;;; fsdplint.el --- fsdplint in Emacs through eglot -*- lexical-binding: t -*-
;; Emacs 29 or newer, which includes eglot: load this file, or copy it into your init.el.

(require 'eglot)

(add-to-list 'eglot-server-programs '((python-mode python-ts-mode) . ("fsdplint" "server")))
(add-hook 'python-base-mode-hook #'eglot-ensure)

(provide 'fsdplint)
;;; fsdplint.el ends here
