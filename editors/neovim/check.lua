-- Print the diagnostics of a file in a headless Neovim, 0.7 or newer:
-- nvim --headless --clean -c "luafile editors/neovim/check.lua" FILE
local here = vim.fn.fnamemodify(debug.getinfo(1, "S").source:sub(2), ":p:h")

-- What the configuration uses and Neovim 0.7 lacks.
vim.fs = vim.fs or {
  dirname = function(file) return file and vim.fn.fnamemodify(file, ":h") end,
  find = function(names, options)
    for _, name in ipairs(names) do
      local found = vim.fn.findfile(name, vim.fn.fnamemodify(options.path, ":h") .. ";")
      if found ~= "" then return { vim.fn.fnamemodify(found, ":p") } end
    end
    return {}
  end,
}
vim.lsp.start = vim.lsp.start or function(config)
  vim.lsp.buf_attach_client(0, vim.lsp.start_client(config))
end

dofile(here .. "/fsdplint.lua")
vim.cmd("filetype on | doautocmd FileType")
vim.wait(60000, function() return #vim.diagnostic.get(0) > 0 end, 50)
for _, found in ipairs(vim.diagnostic.get(0)) do
  io.stdout:write(("%d:%d: %s %s\n"):format(found.lnum + 1, found.col + 1, found.code or "", found.message))
end
vim.cmd("qa!")
