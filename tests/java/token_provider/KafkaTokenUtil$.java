package org.apache.spark.kafka010;

import java.util.Map;

import org.apache.spark.SparkConf;
import scala.Option;

/** Spark's own, for clusters without tokens. */
public class KafkaTokenUtil$ {
    public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

    public Option<KafkaTokenClusterConf> findMatchingTokenClusterConfig(SparkConf configuration, String servers) {
        return Option.empty();
    }

    public boolean needTokenUpdate(Map<String, Object> properties, Option<KafkaTokenClusterConf> cluster) {
        return false;
    }
}
