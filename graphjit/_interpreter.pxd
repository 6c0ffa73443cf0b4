cpdef unsigned long long thread_ident() noexcept
cpdef Py_ssize_t reference_count(object value) noexcept
cpdef object function_attribute(object function, str name)
