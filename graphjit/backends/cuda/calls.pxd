cpdef object write_words(bytes places, list words)

cpdef unsigned long long current_context() noexcept
cpdef int launch(unsigned long long executable, unsigned long long stream) noexcept
cpdef int repoint(
    unsigned long long executable,
    unsigned long long node,
    object params,
    unsigned long long address,
) noexcept
