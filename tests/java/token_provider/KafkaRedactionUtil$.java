package org.apache.spark.kafka010;

import scala.collection.immutable.Seq;

/** Spark logs a client's properties through it; they hold no secret in a benchmark. */
public class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    public Seq<Object> redactParams(Seq<Object> properties) {
        return properties;
    }
}
