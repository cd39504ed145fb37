# The first steps in R. ISENTROPIC_R is the file that `R CMD SHLIB first_steps_r.c -lisentropic` makes.
dyn.load(Sys.getenv("ISENTROPIC_R", "first_steps_r.so"))

# arrays: matrices by name; an output's numbers are NA. R stores matrices by columns, this interface by rows.
isentropic_apply <- function(operation, arrays, parameters = "{}") {
  rows <- vapply(arrays, nrow, 0L)
  cols <- vapply(arrays, ncol, 0L)
  given <- as.double(unlist(lapply(arrays, t)))
  found <- .C("apply_to_rows", operation, parameters, names(arrays), rows, cols, length(arrays), given, NAOK = TRUE)[[7]]
  ends <- cumsum(rows * cols)
  Map(function(end, r, c) matrix(found[seq_len(r * c) + end - r * c], r, c, byrow = TRUE), ends, rows, cols)
}

x <- rbind(c(2, 1, 0.1, -1))
p <- isentropic_apply("entmax", list(x = x, y = NA * x), '{"alpha": 1.3}')$y
entropy <- isentropic_apply("entropy", list(p = p, value = matrix(NA)))$value
cat(sprintf("%.4f", p), "entropy", sprintf("%.4f\n", entropy))
tryCatch(
  isentropic_apply("softmax", list(x = x, y = NA * x), '{"temperature": -1}'),
  error = function(e) cat(conditionMessage(e), "\n", sep = "")
)
