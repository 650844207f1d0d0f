-- Neovim 0.8 or newer: copy this into your init.lua, or source it from there.
vim.api.nvim_create_autocmd("FileType", {
  pattern = { "python", "yaml", "json", "sh", "dockerfile", "make" },
  callback = function(event)
    local markers = { "fsdplint.toml", "pyproject.toml", "setup.py", ".git" }
    local found = vim.fs.find(markers, { upward = true, path = vim.api.nvim_buf_get_name(event.buf) })
    vim.lsp.start({
      name = "fsdplint",
      cmd = { "fsdplint", "server" },
      root_dir = vim.fs.dirname(found[1]),
      init_options = { run = "onType" },
    })
  end,
})
