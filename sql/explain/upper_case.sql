-- Whether the spans have a trace id in upper case, which no row and no view has, for `underspan explain`.
SELECT count() AS spans FROM otel_span WHERE trace_id = upper({trace_id:String})
