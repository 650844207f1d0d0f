;;; check.el --- Print the diagnostics of a file in Emacs -*- lexical-binding: t -*-
;; emacs --batch -L editors/emacs -l check.el --eval '(fsdplint-check "FILE")'
;; Emacs 28 needs eglot's package.

(package-initialize)
(load "fsdplint")

(defun fsdplint-check (file)
  "Print the diagnostics of FILE, one a line."
  (find-file file)
  (python-mode)
  (let ((eglot-sync-connect 30)
        (end (+ (float-time) 60))
        found)
    (apply #'eglot (eglot--guess-contact))
    (while (and (null found) (< (float-time) end))
      (accept-process-output nil 0.1)
      (flymake-start)
      (setq found (flymake-diagnostics)))
    (dolist (each found)
      (goto-char (flymake-diagnostic-beg each))
      (princ (format "%d:%d: %s\n" (line-number-at-pos) (1+ (current-column))
                     (flymake-diagnostic-text each))))))

;;; check.el ends here
